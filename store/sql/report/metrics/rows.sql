-- How many rows do the largest tables have?
select
    (select count(*) from geometry) as geometry,
    (select count(*) from spectra) as spectra,
    (select count(*) from forecasts) as forecasts,
    (select coalesce(sum(n), 0)::bigint from skipped) as skipped,
    (select count(*) from failures) as failures

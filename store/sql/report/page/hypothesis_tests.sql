-- Hypotheses on the data sets that were kept for confirming them
-- n_datasets: data sets of the confirming half on which the study has isotropy and error.
with confirmed as (
    select
        study,
        measure,
        count(distinct dataset) filter (where isfinite(log_nmse)) as nmse,
        count(distinct dataset) filter (where isfinite(log_wql)) as wql
    from population_units
    where half = 'confirmed'
        and isfinite(isotropy)
    group by all
)

select
    tests.name,
    tests.claim,
    tests.verdict,
    tests.measure,
    tests."grouping",
    tests.error,
    tests.explored_estimate as explored_rho,
    tests.estimate as rho,
    tests.low,
    tests.high,
    tests.p_holm,
    tests.detectable,
    if(tests.error = 'wql', confirmed.wql, confirmed.nmse) as n_datasets
from hypothesis_tests as tests
left join confirmed
    using (study, measure)
order by tests.name

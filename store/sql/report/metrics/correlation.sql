-- What is the Spearman correlation of isotropy with forecast error?
-- The grouping is that of the page's summary: per_dataset, which keeps conditions apart and needs three models or more,
-- where it has a correlation; else within_dataset.
select
    "grouping",
    measure,
    spearman,
    case when measure = 'zeta_adjusted_corrected' then low end as low,
    case when measure = 'zeta_adjusted_corrected' then high end as high,
    case when measure = 'zeta_adjusted_corrected' then p end as p,
    case when measure = 'zeta_adjusted_corrected' then n end as n
from correlation
where study = $study
    and "grouping" in ('per_dataset', 'within_dataset')
qualify ("grouping" = 'per_dataset') = (count(spearman) filter (where "grouping" = 'per_dataset') over () > 0)
order by "grouping", measure

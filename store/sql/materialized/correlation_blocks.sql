-- In each block of units, how do isotropy and log NMSE correlate (null with fewer than three units or without spread)?
with blocks as (
    select
        unnest(['within_dataset', 'per_model', 'per_dataset', 'pooled']) as "grouping",
        unnest([dataset, model, dataset || ' / ' || condition, 'all']) as block,
        *
    from correlation_units
),

ranks as (
    select
        *,
        rank() over by_isotropy + (count(*) over (by_isotropy range between current row and current row) - 1) / 2 as rank_isotropy,
        rank() over by_log_nmse + (count(*) over (by_log_nmse range between current row and current row) - 1) / 2 as rank_nmse
    from blocks
    window
        by_isotropy as (partition by study, measure, "grouping", block order by isotropy),
        by_log_nmse as (partition by study, measure, "grouping", block order by log_nmse)
),

final as (
    select
        study,
        measure,
        "grouping",
        block,
        count(*) as n,
        count(distinct model) as n_models,
        count(distinct dataset) as n_datasets,
        count(distinct condition) as n_conditions,
        n >= 3 and count(distinct isotropy) > 1 and count(distinct log_nmse) > 1 as is_defined,
        case when is_defined then corr(rank_isotropy, rank_nmse) end as spearman,
        case when is_defined then corr(isotropy, log_nmse) end as pearson
    from ranks
    group by all
)

select * exclude (is_defined) from final

-- In each block of units, how do isotropy and log NMSE correlate (null with fewer than three units or without spread)?
with blocks as (
    select
        'within_dataset' as "grouping",
        dataset as block,
        *
    from correlation_units
    union all
    select
        'per_model' as "grouping",
        model as block,
        *
    from correlation_units
    union all
    select
        'per_dataset' as "grouping",
        dataset || ' / ' || condition as block,
        *
    from correlation_units
    union all
    select
        'pooled' as "grouping",
        'all' as block,
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
        by_isotropy as (
            partition by study, measure, "grouping", block
            order by isotropy
        ),
        by_log_nmse as (
            partition by study, measure, "grouping", block
            order by log_nmse
        )
),

estimates as (
    select
        study,
        measure,
        "grouping",
        block,
        count(*) as n,
        count(distinct model) as n_models,
        count(distinct dataset) as n_datasets,
        count(distinct condition) as n_conditions,
        corr(rank_isotropy, rank_nmse) as spearman,
        corr(isotropy, log_nmse) as pearson,
        count(*) >= 3
            and count(distinct isotropy) > 1
            and count(distinct log_nmse) > 1 as is_defined
    from ranks
    group by
        study,
        measure,
        "grouping",
        block
),

final as (
    select
        * exclude (spearman, pearson, is_defined),
        case when is_defined then spearman end as spearman,
        case when is_defined then pearson end as pearson
    from estimates
)

select * from final

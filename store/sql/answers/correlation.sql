-- Does isotropy predict forecasting error (with log NMSE floored at 1e-6; negative: more isotropic, better)?
with units as (
    select
        study,
        measure,
        count(*) filter (where isotropy is null or log_nmse is null) as n_null,
        count(*) filter (where is_floored) as n_floored
    from nmse_against_isotropy
    group by
        study,
        measure
),

groupings ("grouping", position, evidence) as (
    values
        ('within_dataset', 1, 'headline: mean over data sets, models recurring; no interval or p yet'),
        ('per_model', 2, 'mean over models; data sets differ in difficulty'),
        ('per_dataset', 3, 'mean over (data set, condition), across models only; needs three models'),
        ('pooled', 4, 'no evidence: differences between data sets and models make it')
),

estimates as (
    select
        study,
        measure,
        "grouping",
        sum(n)::bigint as n,
        count(spearman) as n_blocks,
        count(*) - count(spearman) as n_blocks_undefined,
        avg(spearman) as spearman,
        avg(pearson) as pearson
    from correlation_blocks
    group by
        study,
        measure,
        "grouping"
),

final as (
    select
        units.study,
        units.measure,
        groupings."grouping",
        coalesce(estimates.n, 0) as n,
        coalesce(estimates.n_blocks, 0) as n_blocks,
        coalesce(estimates.n_blocks_undefined, 0) as n_blocks_undefined,
        units.n_null,
        units.n_floored,
        estimates.spearman,
        estimates.pearson,
        groupings.evidence
    from units
    cross join groupings
    left join estimates
        on estimates.study = units.study
        and estimates.measure = units.measure
        and estimates."grouping" = groupings."grouping"
    order by
        units.study,
        units.measure,
        groupings.position
)

select * from final

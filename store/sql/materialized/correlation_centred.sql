-- How do isotropy and log NMSE correlate after subtracting the means of data sets and of (model, condition)?
-- Only (model, condition) columns with values in at least half of the data sets are used, and then
-- only data sets that have all of these columns.
with units as (
    select
        study,
        measure,
        dataset,
        model,
        condition,
        isotropy,
        log_nmse,
        count(distinct dataset) over (partition by study, measure) as n_datasets,
        count(*) over (partition by study, measure, model, condition) as n_here
    from correlation_units
),

columns as (
    select
        study,
        measure,
        count(distinct (model, condition)) as n_columns
    from units
    where 2 * n_here >= n_datasets
    group by
        study,
        measure
),

complete as (
    select
        units.*,
        columns.n_columns,
        count(*) over (partition by units.study, units.measure, units.dataset) as n_columns_here
    from units
    inner join columns
        on columns.study = units.study
        and columns.measure = units.measure
    where 2 * units.n_here >= units.n_datasets
),

ranks as (
    select
        *,
        rank() over by_isotropy + (count(*) over (by_isotropy range between current row and current row) - 1) / 2 as rank_isotropy
    from complete
    where n_columns_here = n_columns
    window
        by_isotropy as (
            partition by study, measure, dataset
            order by isotropy
        )
),

centred as (
    select
        *,
        rank_isotropy
            - avg(rank_isotropy) over (partition by study, measure, dataset)
            - avg(rank_isotropy) over (partition by study, measure, model, condition)
            + avg(rank_isotropy) over (partition by study, measure) as left_isotropy,
        log_nmse
            - avg(log_nmse) over (partition by study, measure, dataset)
            - avg(log_nmse) over (partition by study, measure, model, condition)
            + avg(log_nmse) over (partition by study, measure) as left_nmse
    from ranks
),

final as (
    select
        study,
        measure,
        count(*) as n,
        count(distinct dataset) as n_datasets,
        any_value(n_columns) as n_columns,
        case
            -- Anything smaller is rounding error.
            when avg(left_isotropy ** 2) > 1e-20 * avg(rank_isotropy ** 2)
                and avg(left_nmse ** 2) > 1e-20 * avg(log_nmse ** 2)
                then sum(left_isotropy * left_nmse) / sqrt(sum(left_isotropy ** 2) * sum(left_nmse ** 2))
        end as double_centred
    from centred
    group by
        study,
        measure
)

select * from final

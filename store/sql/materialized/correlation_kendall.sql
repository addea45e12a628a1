-- What is Kendall's tau-b in each block of one model or data set (Kendall 1945; null if Spearman's rho is null)?
with units as (
    select
        study,
        measure,
        model,
        dataset,
        isotropy,
        log_nmse,
        row_number() over () as unit
    from correlation_units
),

blocks as (
    select
        study,
        measure,
        unnest(['within_dataset', 'per_model']) as "grouping",
        unnest([dataset, model]) as block,
        isotropy,
        log_nmse,
        unit
    from units
),

signs as (
    select
        unit_a.study,
        unit_a.measure,
        unit_a."grouping",
        unit_a.block,
        sign(unit_a.isotropy - unit_b.isotropy)::integer as isotropy,
        sign(unit_a.log_nmse - unit_b.log_nmse)::integer as log_nmse
    from blocks as unit_a
    inner join blocks as unit_b
        on unit_b.study = unit_a.study
        and unit_b.measure = unit_a.measure
        and unit_b."grouping" = unit_a."grouping"
        and unit_b.block = unit_a.block
        and unit_b.unit < unit_a.unit
),

final as (
    select
        study,
        measure,
        "grouping",
        block,
        case
            when count(*) >= 3 and max(abs(isotropy)) > 0 and max(abs(log_nmse)) > 0
                then sum(isotropy * log_nmse) / (sqrt(sum(abs(isotropy))) * sqrt(sum(abs(log_nmse))))
        end as kendall
    from signs
    group by
        study,
        measure,
        "grouping",
        block
)

select * from final

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
        one.study,
        one.measure,
        one."grouping",
        one.block,
        sign(one.isotropy - other.isotropy)::integer as isotropy,
        sign(one.log_nmse - other.log_nmse)::integer as log_nmse
    from blocks as one
    inner join blocks as other
        on other.study = one.study
        and other.measure = one.measure
        and other."grouping" = one."grouping"
        and other.block = one.block
        and other.unit < one.unit
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

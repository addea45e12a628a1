-- What did we measure of each quantity that the isotropy paper prints, with which interval?
-- d(0.8): median and range over layers 1 to n; variance: of layer 8 (2 of Moirai), or the last; NMSE: mean over series,
-- 1.96 standard errors; zeta_adjusted: 1.96 s.d. of its permutation null on both sides.
with cells as (
    select
        study,
        family,
        model,
        stack,
        dataset,
        condition,
        context,
        noise,
        zeta_adjusted,
        zeta_adjusted_null_sd
    from last_layer
),

dimensions as (
    select
        cells.study,
        cells.model,
        cells.dataset,
        cells.condition,
        'd(0.8)' as quantity,
        median(found.effective_dimension) as measured,
        min(found.effective_dimension)::double as low,
        max(found.effective_dimension)::double as high
    from cells
    inner join effective_dimension as found
        on found.study = cells.study
        and found.model = cells.model
        and found.dataset = cells.dataset
        and found.condition = cells.condition
        and found.stack = cells.stack
    where found.epsilon = 0.8
        and found.layer >= 1
        and not found.normed
    group by
        cells.study,
        cells.model,
        cells.dataset,
        cells.condition
),

variances as (
    select
        cells.study,
        cells.model,
        cells.dataset,
        cells.condition,
        'variance in 3 components' as quantity,
        list_sum(geometry.eigenvalues[:3]) / nullif(list_sum(geometry.eigenvalues), 0) as measured,
        null::double as low,
        null::double as high
    from cells
    inner join geometry
        on geometry.study = cells.study
        and geometry.model = cells.model
        and geometry.dataset = cells.dataset
        and geometry.condition = cells.condition
        and geometry.stack = cells.stack
    where not geometry.normed
        and geometry.layer <= case when cells.family = 'moirai' then 2 else 8 end
    qualify row_number() over (
        partition by cells.study, cells.model, cells.dataset, cells.condition
        order by geometry.layer desc
    ) = 1
),

errors as (
    select
        study,
        model,
        dataset,
        condition,
        'nmse' as quantity,
        avg(nmse) as measured,
        avg(nmse) - 1.96 * stddev_samp(nmse) / sqrt(count(nmse)) as low,
        avg(nmse) + 1.96 * stddev_samp(nmse) / sqrt(count(nmse)) as high
    from forecasts
    where isfinite(nmse)
    group by
        study,
        model,
        dataset,
        condition
),

cosines as (
    select
        study,
        model,
        dataset,
        condition,
        'zeta_adjusted' as quantity,
        zeta_adjusted as measured,
        zeta_adjusted - 1.96 * zeta_adjusted_null_sd as low,
        zeta_adjusted + 1.96 * zeta_adjusted_null_sd as high
    from cells
),

quantities as (
    select * from dimensions
    union all by name
    select * from variances
    union all by name
    select * from errors
    union all by name
    select * from cosines
),

final as (
    select
        cells.study,
        cells.family,
        cells.model,
        cells.dataset,
        cells.condition,
        cells.context,
        cells.noise,
        quantities.quantity,
        quantities.measured,
        quantities.low,
        quantities.high
    from cells
    inner join quantities
        on quantities.study = cells.study
        and quantities.model = cells.model
        and quantities.dataset = cells.dataset
        and quantities.condition = cells.condition
)

select * from final

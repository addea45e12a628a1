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
        median(found.dimensions[2]) as measured, -- of shares 0.5, 0.8 ...
        min(found.dimensions[2])::double as low,
        max(found.dimensions[2])::double as high
    from cells
    inner join layer_variances as found
        on found.study = cells.study
        and found.model = cells.model
        and found.dataset = cells.dataset
        and found.condition = cells.condition
        and found.stack = cells.stack
    where found.layer >= 1
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
        arg_max_null(found.share_of_3, found.layer) as measured,
        null::double as low,
        null::double as high
    from cells
    inner join layer_variances as found
        on found.study = cells.study
        and found.model = cells.model
        and found.dataset = cells.dataset
        and found.condition = cells.condition
        and found.stack = cells.stack
    where not found.normed
        and found.layer <= case when cells.family = 'moirai' then 2 else 8 end
    group by
        cells.study,
        cells.model,
        cells.dataset,
        cells.condition
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

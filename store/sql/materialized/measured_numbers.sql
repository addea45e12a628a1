-- What did we measure of each quantity that Shelim et al. 2025 print, with which interval?
-- d(0.8) is given for every layer. The variance in three components is given for layer 8 (Moirai:
-- layer 2), or for the last layer of a smaller model. Both describe one covariance matrix, so they
-- have no interval. nmse: mean over windows, with 1.96 standard errors on both sides.
-- zeta_adjusted: with 1.96 standard deviations over token samples and cluster starts on both sides.
-- depth: number of layers of the model.
with printed_studies as (
    -- Only studies of figures with printed numbers are used.
    select study, figure
    from studies
    where figure in (select figure from published_numbers)
),

cells as (
    select
        study,
        family,
        model,
        stack,
        dataset,
        condition,
        context,
        noise,
        layer as depth,
        zeta_adjusted,
        zeta_adjusted_sd,
        reason
    from last_layer
    where study in (select study from printed_studies)
),

states as (
    -- All layers, in the studies of figures that show whole models.
    select
        cells.study,
        cells.family,
        cells.model,
        cells.dataset,
        cells.condition,
        layers.layer,
        -- The second share is 0.8.
        layers.dimensions[2]::double as dimension,
        layers.share_of_3
    from cells
    inner join layer_variances as layers
        using (study, model, dataset, condition, stack)
    where layers.layer >= 1
        and not layers.normed
        and cells.study in (
            select study from printed_studies where figure in ('isotropy Table 1', 'isotropy Fig. 2')
        )
),

dimensions as (
    select
        study,
        model,
        dataset,
        condition,
        layer,
        'd(0.8)' as quantity,
        dimension as measured
    from states
    where dimension is not null
),

variances as (
    select
        study,
        model,
        dataset,
        condition,
        'variance in 3 components' as quantity,
        share_of_3 as measured
    from states
    where layer <= case when family = 'moirai' then 2 else 8 end
    qualify row_number() over (
        partition by study, model, dataset, condition
        order by layer desc
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
        avg(nmse) + 1.96 * stddev_samp(nmse) / sqrt(count(nmse)) as high,
        count(nmse) as n,
        case when count(nmse) < 2 then 'one series gives no spread' end as no_interval
    from forecasts
    where isfinite(nmse)
        and study in (select study from printed_studies)
    group by all
),

cosines as (
    select
        study,
        model,
        dataset,
        condition,
        'zeta_adjusted' as quantity,
        zeta_adjusted as measured,
        zeta_adjusted - 1.96 * zeta_adjusted_sd as low,
        zeta_adjusted + 1.96 * zeta_adjusted_sd as high,
        case
            when zeta_adjusted_sd is null then coalesce(reason, 'no standard deviation: geometry.repeats is under 2')
            else reason
        end as no_interval
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
        cells.depth,
        datasets.paper,
        datasets.stands_in_for,
        quantities.layer,
        quantities.quantity,
        quantities.measured,
        quantities.low,
        quantities.high,
        quantities.n,
        case
            when quantities.low is null then coalesce(quantities.no_interval, 'one covariance matrix')
        end as no_interval
    from cells
    inner join datasets
        using (dataset)
    inner join quantities
        using (study, model, dataset, condition)
)

select * from final

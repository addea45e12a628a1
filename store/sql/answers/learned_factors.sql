-- When in its training does a model learn a factor: the best score of all layers after each step?
with final as (
    select
        probes.study,
        population.family,
        population.size,
        population.run,
        population.step,
        population.is_final,
        probes.factor,
        probes.measure,
        max(probes.value) as value,
        max_by(probes.layer, probes.value) as layer,
        max_by(probes.low, probes.value) as low,
        max_by(probes.high, probes.value) as high,
        population.validation_loss
    from probes
    inner join population
        on population.model = probes.model
    where probes.features = 'states' and probes.directions is null
    group by all
)

select * from final
order by study, factor, family, run, step

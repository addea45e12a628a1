-- The models
with snapshots as (
    select
        run,
        count(*) as n
    from population
    where not is_final
    group by run
)

select
    checkpoints.model,
    checkpoints.family,
    checkpoints.source,
    checkpoints.ref,
    checkpoints.parameters,
    checkpoints.bytes,
    checkpoints.license,
    coalesce(snapshots.n, 0) as snapshots -- of a population; only the last weights of a training have a row
from checkpoints
anti join population
    on population.model = checkpoints.model
    and not population.is_final
left join snapshots
    on snapshots.run = checkpoints.model
order by checkpoints.model

-- Which numbers do tests on rank schedules compare: per seed, the log of one score divided by another?
-- Models with the same number in the study's `x_axis` have the same seed. A score is the geometric
-- mean over data sets.
with grid as (
    select
        study,
        entry.key as model,
        entry.value::double as seed
    from studies,
        lateral (select unnest(map_entries(x_axis::json::map(varchar, double)), recursive := false) as entry)
    where x_axis is not null
),

schedules as (
    select
        grid.study,
        grid.seed,
        grid.model,
        checkpoints.family,
        coalesce(list_filter(json_keys(checkpoints.heads::json), lambda key: key not in ('factors', 'attention'))[1], 'dense')
            || coalesce(' of ' || array_to_string((checkpoints.heads::json -> '$.attention')::varchar[], ', '), '') as schedule
    from grid
    inner join checkpoints
        on checkpoints.model = grid.model
    where checkpoints.recipe is not null
),

losses as (
    select
        schedules.study,
        schedules.family,
        schedules.seed,
        schedules.schedule,
        scores.rank,
        scores.dataset,
        scores.condition,
        score.measure,
        score.value
    from schedules
    inner join scores
        on scores.study = schedules.study
        and scores.model = schedules.model,
        lateral (
            values ('log WQL', ln(nullif(scores.wql, 0))), ('log MASE', ln(nullif(scores.mase, 0)))
        ) as score (measure, value)
),

pairs as (
    select
        one.study,
        one.family,
        one.measure,
        coalesce(one.rank, other.rank) as rank,
        one.schedule || ' less ' || other.schedule as pair,
        one.seed,
        one.dataset,
        one.value - other.value as value
    from losses as one
    inner join losses as other
        on other.study = one.study
        and other.family = one.family
        and other.seed = one.seed
        and other.dataset = one.dataset
        and other.condition = one.condition
        and other.measure = one.measure
        and other.schedule != one.schedule
        and (other.rank is null or one.rank = other.rank)
    where (one.schedule = 'flow' and other.schedule in ('flat', 'dense'))
        or (one.schedule = 'flat' and other.schedule = 'dense')
),

final as (
    select
        study,
        'flow_against_flat' as answer,
        measure,
        family as "grouping",
        pair || ' at ' || format('{:g}', rank) as block,
        'mean' as statistic,
        null::varchar as sample,
        seed::varchar as unit,
        null::double as x,
        avg(value) as value
    from pairs
    group by all
)

select * from final

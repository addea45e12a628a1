-- Which numbers do tests on rank schedules compare: per seed, the log of one score divided by another?
-- Models with the same number in the study's `x_axis` have the same seed. A score is the geometric
-- mean over data sets.
with schedules as (
    select
        model_x_values.study,
        model_x_values.x as seed,
        model_x_values.model,
        checkpoints.family,
        coalesce(list_filter(json_keys(checkpoints.heads::json), lambda key: key not in ('factors', 'attention'))[1], 'dense')
            || coalesce(' of ' || array_to_string((checkpoints.heads::json -> '$.attention')::varchar[], ', '), '') as schedule
    from model_x_values
    inner join checkpoints
        on checkpoints.model = model_x_values.model
    where checkpoints.recipe is not null
),

losses as (
    select
        schedules.study,
        schedules.family,
        schedules.seed,
        schedules.schedule,
        scores.size_parameter,
        scores.size_rule,
        scores.dataset,
        scores.condition,
        score.measure,
        score.value
    from schedules
    inner join scores
        on scores.study = schedules.study
        and scores.model = schedules.model,
        lateral (
            values ('log WQL', ln(nullif(scores.wql, 0))), ('log MASE', ln(nullif(scores.mase_gluonts, 0)))
        ) as score (measure, value)
),

pairs as (
    select
        numerator.study,
        numerator.family,
        numerator.measure,
        coalesce(numerator.size_parameter, denominator.size_parameter) as size_parameter,
        numerator.schedule || ' less ' || denominator.schedule as pair,
        numerator.seed,
        numerator.dataset,
        numerator.value - denominator.value as value
    from losses as numerator
    inner join losses as denominator
        on denominator.study = numerator.study
        and denominator.family = numerator.family
        and denominator.seed = numerator.seed
        and denominator.dataset = numerator.dataset
        and denominator.condition = numerator.condition
        and denominator.measure = numerator.measure
        and denominator.schedule != numerator.schedule
        and (
            denominator.size_rule is null
            or (denominator.size_rule = numerator.size_rule and denominator.size_parameter = numerator.size_parameter)
        )
    where (numerator.schedule = 'flow' and denominator.schedule in ('flat', 'dense'))
        or (numerator.schedule = 'flat' and denominator.schedule = 'dense')
),

final as (
    select
        study,
        'flow_against_flat' as answer,
        measure,
        family as "grouping",
        pair || ' at ' || format('{:g}', size_parameter) as block,
        'mean' as statistic,
        null::varchar as sample,
        seed::varchar as unit,
        null::double as x,
        avg(value) as value
    from pairs
    group by all
)

select * from final

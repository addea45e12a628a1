-- From which layer is each factor read best, how many directions carry it, and what do features without a model give?
-- directions: the least number of first directions whose score is 95 % of that of all of them (of what is above 1/2,
-- for AUC); null where nothing is read.
with probed as (
    select *, case when measure = 'AUC' then 0.5 else 0 end as chance
    from probes
),

best as (
    select *
    from probed
    where features = 'states' and directions is null
    qualify row_number() over (partition by study, model, context, factor order by value desc, layer, normed) = 1
),

curves as (
    select *, max_by(value, directions) over (partition by study, model, context, factor, stack, layer, normed) as total
    from probed
    where directions is not null
),

carried as (
    select
        study, model, context, factor, stack, layer, normed,
        min(directions) filter (where value - chance >= 0.95 * (total - chance) and total > chance) as directions,
        any_value(numerical_rank) as numerical_rank,
        any_value(effective_dimension) as effective_dimension
    from curves
    group by all
),

controls as (
    select
        study, model, context, factor,
        max(value) filter (where features = 'untrained states') as untrained,
        max(value) filter (where features = 'window') as in_window,
        max(value) filter (where features = 'simple features') as simple_features
    from probed
    group by all
),

final as (
    select
        best.study, best.model, best.context, best.factor, best.measure, best.stack, best.layer, best.normed,
        best.value, best.low, best.high, best.n_series, best.width,
        case when best.value > best.chance then carried.directions end as directions,
        carried.numerical_rank, carried.effective_dimension,
        controls.untrained, controls.in_window, controls.simple_features
    from best
    inner join controls using (study, model, context, factor)
    left join carried using (study, model, context, factor, stack, layer, normed)
)

select * from final
order by study, model, factor

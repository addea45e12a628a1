-- Numerical rank along the grid of models
with grid as ( -- the quantity in which the models of a study differ
    select
        entry.key as model,
        entry.value::double as x
    from studies,
        lateral (select unnest(map_entries(x_axis::json::map(varchar, double)), recursive := false) as entry)
    where study = $study
        and x_axis is not null
),

ranks as (
    select
        model,
        'embedded tokens' as quantity,
        epsilon,
        below_noise_floor,
        width,
        numerical_rank as rank
    from embedding_ranks
    where study = $study
    union all
    select
        model,
        'query projections',
        epsilon,
        below_noise_floor,
        n_columns,
        numerical_rank
    from weight_ranks
    where study = $study
        and matrix = 'q'
        and step is null
    union all
    select
        model,
        'their heads',
        epsilon,
        below_noise_floor,
        head_width,
        head_rank
    from head_ranks
    where study = $study
        and matrix = 'q'
        and step is null
        and heads > 0
)

select
    ranks.model,
    checkpoints.family,
    checkpoints.modality,
    ranks.quantity,
    grid.x,
    ranks.epsilon,
    max(ranks.width) as width,
    bool_or(ranks.below_noise_floor) as below_noise_floor,
    avg(ranks.rank) as rank,
    count(*) as n
from ranks
inner join grid
    on grid.model = ranks.model
left join checkpoints
    on checkpoints.model = ranks.model
where ranks.epsilon in (1e-1, 1e-2, 1e-3)
group by all
order by ranks.quantity, checkpoints.family, ranks.epsilon desc, grid.x, ranks.model

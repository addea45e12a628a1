-- Numerical rank along the grid of models
with ranks as (
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
    model_x_values.x,
    ranks.epsilon,
    max(ranks.width) as width,
    bool_or(ranks.below_noise_floor) as below_noise_floor,
    avg(ranks.rank) as rank,
    count(*) as n
from ranks
inner join model_x_values
    on model_x_values.study = $study
    and model_x_values.model = ranks.model
left join checkpoints
    on checkpoints.model = ranks.model
where ranks.epsilon in (1e-1, 1e-2, 1e-3)
group by all
order by ranks.quantity, checkpoints.family, ranks.epsilon desc, model_x_values.x, ranks.model

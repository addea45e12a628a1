-- Numerical rank of every layer's input
select
    model,
    modality,
    stack,
    layer,
    epsilon,
    any_value(width) as full_rank,
    bool_or(below_noise_floor) as below_noise_floor,
    median(numerical_rank) as rank,
    min(numerical_rank) as low,
    max(numerical_rank) as high,
    count(*) as n
from flow_of_ranks
where study = $study
    and tokens = 'valued'
    and epsilon in (1e-1, 1e-2, 1e-3)
group by all
order by model, stack, epsilon desc, layer

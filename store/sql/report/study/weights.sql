-- Numerical rank of every query projection
select
    model,
    modality,
    concat_ws(' ', stack, nullif(attention, 'self')) as stack,
    layer,
    epsilon,
    max(full_rank) as full_rank,
    bool_or(below_noise_floor) as below_noise_floor,
    avg(numerical_rank) as rank,
    min(numerical_rank) as low,
    max(numerical_rank) as high,
    count(*) as n
from weight_ranks
where study = $study
    and matrix = 'q'
    and attention is distinct from 'cross'
    and step is null
    and epsilon in (1e-1, 1e-2, 1e-3)
group by all
order by model, stack, epsilon desc, layer

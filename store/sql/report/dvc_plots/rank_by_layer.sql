-- Numerical rank by layer, as a share of the width
select
    line,
    layer,
    avg(share) as share
from (
    select distinct model || ' ' || stack as line, dataset, condition, layer, share
    from flow_of_ranks
    anti join snapshot_models
        using (model)
    where epsilon = 0.01 -- Yu et al. 2026, Fig. 2
        and not below_noise_floor
        and tokens = 'valued'
)
group by all
order by all

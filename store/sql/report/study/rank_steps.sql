-- Rank of each layer's input in each snapshot of a population of trainings, as a share of the full rank
-- share: mean over data sets and conditions; null if one of them has no rank.
select
    population.family,
    population.size,
    population.run,
    population.step,
    ranks.stack,
    ranks.layer,
    ranks.depth,
    ranks.epsilon,
    bool_or(ranks.below_noise_floor) as below_noise_floor,
    case when count(ranks.share) = count(*) then avg(ranks.share) end as share,
    count(*) as n
from flow_of_ranks as ranks
inner join population
    on population.model = ranks.model
where ranks.study = $study
    and ranks.tokens = 'valued'
    and ranks.epsilon in (1e-1, 1e-2)
group by all
order by
    population.family,
    population.run,
    population.step,
    ranks.stack,
    ranks.epsilon desc,
    ranks.layer

-- Effective dimension by layer
select
    found.model,
    checkpoints.family,
    found.stack,
    found.layer,
    found.normed,
    found.epsilon,
    median(found.effective_dimension) as median,
    min(found.effective_dimension) as low,
    max(found.effective_dimension) as high,
    count(*) as n
from effective_dimension as found
inner join checkpoints
    on checkpoints.model = found.model
where found.study = $study
    and found.epsilon = 0.8 -- share of variance as in Shelim et al. 2025, Table 1
group by all
order by found.model, found.stack, found.layer, found.normed

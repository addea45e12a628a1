-- Effective dimension by layer
select
    dimensions.model,
    checkpoints.family,
    dimensions.stack,
    dimensions.layer,
    dimensions.normed,
    dimensions.variance_share,
    median(dimensions.effective_dimension) as median,
    min(dimensions.effective_dimension) as low,
    max(dimensions.effective_dimension) as high,
    count(*) as n
from effective_dimension as dimensions
inner join checkpoints
    on checkpoints.model = dimensions.model
where dimensions.study = $study
    and dimensions.variance_share = 0.8 -- as in Shelim et al. 2025, Table 1
group by all
order by dimensions.model, dimensions.stack, dimensions.layer, dimensions.normed

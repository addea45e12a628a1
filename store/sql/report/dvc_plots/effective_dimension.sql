-- Effective dimension by layer
select
    model || ' ' || stack as line,
    layer,
    median(effective_dimension) as dimension
from effective_dimension
anti join snapshot_models
    using (model)
where study = $study
    and variance_share = 0.8 -- as in Shelim et al. 2025, Table 1
    and not normed
    and effective_dimension is not null
group by all
order by all

-- The models
select
    model,
    family,
    source,
    ref,
    parameters,
    bytes,
    license
from checkpoints
order by model

-- Are heads aligned with the leading directions of their input?
select
    model,
    stack,
    layer,
    n,
    n_null,
    chance,
    query,
    key,
    query_z,
    key_z,
    query_share_above,
    key_share_above,
    inverse_cosine,
    reason
from spectral_alignment
anti join snapshot_models
    using (model)
order by model, stack, layer

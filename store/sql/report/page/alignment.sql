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
anti join population -- without snapshots of a population before the end of their training
    on population.model = spectral_alignment.model
    and not population.is_final
order by model, stack, layer

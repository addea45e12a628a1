-- Is the softmax head's partition function stable?
select
    model,
    dataset,
    condition,
    n_positions,
    log_z_mean,
    log_z_sd,
    log_z_range,
    zeta_adjusted_corrected,
    zeta_adjusted,
    log_isotropy_scaled,
    nmse,
    reason
from partition_spread
anti join snapshot_models
    using (model)
where study = $study
order by model, dataset, condition

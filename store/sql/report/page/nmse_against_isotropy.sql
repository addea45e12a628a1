-- Forecast error against isotropy
select
    model,
    dataset,
    condition,
    any_value(value) filter (where measure = 'zeta_adjusted_corrected') as zeta_adjusted_corrected,
    any_value(value) filter (where measure = 'zeta_adjusted') as zeta_adjusted, -- as printed in the paper
    any_value(nmse) as nmse,
    any_value(nmse_median) as nmse_median,
    any_value(nmse_pooled) as nmse_pooled,
    any_value(n_windows) as n_windows
from nmse_against_isotropy
anti join snapshot_models
    using (model)
where study = $study
group by model, dataset, condition
order by model, dataset, condition

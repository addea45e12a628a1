-- Forecast error against isotropy
select
    model as line,
    dataset,
    condition,
    isotropy,
    log_nmse
from nmse_against_isotropy
anti join snapshot_models
    using (model)
where study = $study
    and measure = 'zeta_adjusted_corrected'
    and isotropy is not null
    and log_nmse is not null
order by all

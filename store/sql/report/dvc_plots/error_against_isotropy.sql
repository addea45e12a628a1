-- Forecast error against isotropy
select
    model as line,
    dataset,
    condition,
    isotropy,
    log_nmse
from nmse_against_isotropy
anti join population -- without snapshots of a population before the end of their training
    on population.model = nmse_against_isotropy.model
    and not population.is_final
where study = $study
    and measure = 'zeta_adjusted_corrected'
    and isotropy is not null
    and log_nmse is not null
order by all

-- What is the median isotropy and NMSE of each model?
select
    model,
    median(isotropy) as median_isotropy,
    median(nmse) as median_nmse
from nmse_against_isotropy
anti join snapshot_models
    using (model)
where study = $study
    and measure = 'zeta_adjusted_corrected'
group by model
order by model

-- What is the median isotropy and NMSE of each model?
select
    model,
    median(isotropy) as median_isotropy,
    median(nmse) as median_nmse
from nmse_against_isotropy
anti join population -- without snapshots of a population before the end of their training
    on population.model = nmse_against_isotropy.model
    and not population.is_final
where study = $study
    and measure = 'zeta_adjusted_corrected'
group by model
order by model

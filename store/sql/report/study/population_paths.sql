-- Isotropy and error of each snapshot of a population of trainings, medians over the exploring half of the data sets
with units as (
    select
        *,
        isfinite(isotropy) and isfinite(log_nmse) as has_values
    from population_units
    where study = $study
        and measure = 'zeta_adjusted_corrected'
        and half = 'explored'
)

select
    units.family,
    units.size,
    units.run_seed,
    units.run,
    units.step,
    units.is_final,
    checkpoints.parameters,
    units.validation_loss,
    median(units.isotropy) filter (where units.has_values) as isotropy, -- larger: more isotropic
    exp(median(units.log_nmse) filter (where units.has_values)) as nmse,
    count(distinct units.dataset) filter (where units.has_values) as n_datasets
from units
left join checkpoints
    on checkpoints.model = units.model
group by all
order by units.family, units.run, units.step

-- Forecast error against isotropy
select
    points.model,
    points.dataset,
    datasets.domain,
    datasets.paper,
    datasets.stands_in_for,
    points.condition,
    any_value(points.value) filter (where points.measure = 'zeta_adjusted_corrected') as zeta_adjusted_corrected,
    any_value(points.value) filter (where points.measure = 'zeta_adjusted') as zeta_adjusted, -- as printed in the paper
    any_value(points.nmse) as nmse,
    any_value(points.n_windows) as n_windows,
    -- Over the models of the data set and condition, with log NMSE; negative: more isotropic, less error.
    any_value(blocks.spearman) filter (where points.measure = 'zeta_adjusted_corrected') as rho_corrected,
    any_value(blocks.spearman) filter (where points.measure = 'zeta_adjusted') as rho_printed
from nmse_against_isotropy as points
left join datasets
    on datasets.dataset = points.dataset
left join correlation_blocks as blocks
    on blocks.study = points.study
    and blocks.measure = points.measure
    and blocks."grouping" = 'per_dataset'
    and blocks.block = points.dataset || ' / ' || points.condition
where points.study = $study
group by points.model, points.dataset, datasets.domain, datasets.paper, datasets.stands_in_for, points.condition
order by points.model, points.dataset, points.condition

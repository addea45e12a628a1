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
    any_value(points.n_windows) as n_windows
from nmse_against_isotropy as points
left join datasets
    on datasets.dataset = points.dataset
where points.study = $study
group by points.model, points.dataset, datasets.domain, datasets.paper, datasets.stands_in_for, points.condition
order by points.model, points.dataset, points.condition

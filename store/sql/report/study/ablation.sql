-- Forecast errors without each part
select
    model, condition, stack, layer, kind, part as name, way, ratio, low, high, upper, can_go, n_datasets, n_windows, units
from ablation
where study = $study
order by model, condition, stack, layer, kind, part

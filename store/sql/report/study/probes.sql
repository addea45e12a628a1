-- Scores of linear probes of the states of every layer
select
    model,
    features,
    layer,
    normed,
    coalesce(concat(layer::varchar, case when normed then '′' else '' end), '') as name,
    directions,
    factor,
    measure,
    value,
    low,
    high,
    n_series
from probes
where study = $study
    and model not in (select model from population where not is_final)
order by model, directions nulls first, features, layer, normed, factor

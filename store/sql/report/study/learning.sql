-- Best score of a factor over all layers, by step of the training
select family, size, run, step, factor, measure, value, low, high, layer
from learned_factors
where study = $study
order by factor, family, run, step

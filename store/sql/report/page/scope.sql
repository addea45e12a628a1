-- Models, data sets, conditions and series of the study
select
    count(distinct model) as models,
    count(distinct dataset) as datasets,
    count(distinct condition) as conditions,
    count(nmse) as forecasts, -- those with a score
    count(distinct (dataset, series)) filter (where nmse is not null) as series
from forecasts
anti join baselines
    on baselines.model = forecasts.model
where study = $study

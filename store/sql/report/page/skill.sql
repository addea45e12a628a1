-- Skill of the models
select
    model,
    sine_error,
    sine_error_max,
    sine_period_max,
    n_windows,
    n_datasets,
    n_seasonal,
    wql_vs_median,
    low,
    high,
    wql_vs_seasonal,
    seasonal_low,
    seasonal_high
from skill
order by model

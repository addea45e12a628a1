-- Forecast error on real and on synthetic data sets
select
    kind,
    model,
    n_datasets,
    wql,
    wql_low,
    wql_high,
    mae,
    mae_low,
    mae_high
from mean_skill
order by
    kind,
    wql,
    model

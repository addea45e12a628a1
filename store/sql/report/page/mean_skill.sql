-- Forecast error on real and on synthetic data sets
select
    kind,
    model,
    n_datasets,
    wql as wql_vs_seasonal,
    wql_low,
    wql_high,
    mae as mae_ratio,
    mae_low,
    mae_high
from mean_skill
order by kind, wql, model

-- Forecast error on each data set
select
    dataset,
    model,
    is_real,
    trained_on,
    n_windows,
    season,
    wql_ratio as wql_vs_seasonal,
    mae_ratio
from dataset_skill
order by is_real desc, dataset, wql_ratio, model

-- How well does each model forecast, relative to seasonal naive, over windows that all models of the study have scored?
-- Ratios of WQL (pooled over series) and of MASE (averaged over series): geometric means over data
-- sets and conditions, as in the Chronos evaluation; below 1 the model is better.
-- Only studies that measure local baselines have rows. The ratios are to the baseline
-- seasonal-naive, which is statsforecast's and has prediction intervals, fitted on the context.
with common as (
    select
        study,
        dataset,
        condition,
        series,
        origin
    from forecasts
    group by all
    having bool_and(n_future > 0 and not starts_with(coalesce(reason, ''), 'not forecast'))
        and count(mase) = count(*)
),

cells as (
    select
        forecasts.study,
        forecasts.model,
        forecasts.dataset,
        forecasts.condition,
        count(*) as n_windows,
        sum(forecasts.quantile_loss) as loss,
        avg(forecasts.mase) as mase
    from forecasts
    semi join common
        using (study, dataset, condition, series, origin)
    group by all
),

final as (
    select
        cells.study,
        cells.model,
        baselines.model is not null as is_baseline,
        compression.base_model,
        compression.method,
        compression.attention_ratio,
        count(*) as n_cells,
        sum(cells.n_windows)::bigint as n_windows,
        exp(avg(ln(nullif(cells.loss, 0) / nullif(naive.loss, 0)))) as wql_ratio,
        exp(avg(ln(nullif(cells.mase, 0) / nullif(naive.mase, 0)))) as mase_ratio
    from cells
    inner join cells as naive
        on naive.study = cells.study
        and naive.dataset = cells.dataset
        and naive.condition = cells.condition
        and naive.model = 'seasonal-naive'
    left join baselines
        on baselines.model = cells.model
    left join compression
        on compression.model = cells.model
    group by all
    order by cells.study, wql_ratio, cells.model
)

select * from final

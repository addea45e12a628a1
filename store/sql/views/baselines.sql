-- Which names in forecasts are local baselines, which are fitted to each series, and not models?
-- All baselines come from statsforecast and are probabilistic. seasonal-naive has prediction
-- intervals, unlike the point forecast in the column `skill`.
with final (model) as (
    values ('seasonal-naive'), ('auto-ets'), ('auto-theta'), ('auto-arima')
)

select * from final

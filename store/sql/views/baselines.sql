-- Which names in forecasts are no models but local baselines, fitted anew on every series?
with named (model) as (
    values
        ('seasonal-naive'),
        ('auto-ets'),
        ('auto-theta'),
        ('auto-arima')
),

final as (
    select model
    from named
)

select * from final

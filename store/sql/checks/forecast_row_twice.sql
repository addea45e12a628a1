-- No window is forecast twice in a study.
with final as (
    select
        study,
        model,
        dataset,
        condition,
        series,
        origin,
        count(*) as n
    from forecasts
    group by
        study,
        model,
        dataset,
        condition,
        series,
        origin
    having count(*) > 1
)

select * from final

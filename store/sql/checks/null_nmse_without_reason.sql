-- A forecast without NMSE says why.
with final as (
    select
        study,
        model,
        dataset,
        condition,
        series,
        origin,
        nmse
    from forecasts
    where (nmse is null or isnan(nmse))
        and reason is null
)

select * from final

-- A forecast without NMSE says why.
with scored as (
    select *
    from forecasts
    union all
    select *
    from validation
),

final as (
    select
        study,
        model,
        dataset,
        condition,
        series,
        origin,
        nmse
    from scored
    where (nmse is null or isnan(nmse))
        and reason is null
)

select * from final

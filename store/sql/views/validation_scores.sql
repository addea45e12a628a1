-- How well did each model forecast the window before the last (means over windows; log NMSE floored as in scores)?
with windows as (
    select
        * replace (case when isfinite(nmse) then nmse end as nmse)
    from validation
),

final as (
    select
        study,
        model,
        dataset,
        condition,
        count(nmse) as n,
        avg(nmse) as nmse,
        case when avg(nmse) is not null then ln(greatest(avg(nmse), 1e-6)) end as log_nmse
    from windows
    group by all
)

select * from final

-- No layer is measured twice in a study.
with final as (
    select
        study,
        model,
        dataset,
        condition,
        stack,
        layer,
        normed,
        count(*) as n
    from geometry
    group by
        study,
        model,
        dataset,
        condition,
        stack,
        layer,
        normed
    having count(*) > 1
)

select * from final

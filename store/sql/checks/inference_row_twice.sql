-- No statistic of a study stands twice.
with final as (
    select
        study,
        answer,
        measure,
        "grouping",
        block,
        statistic,
        count(*) as n
    from inference
    group by
        study,
        answer,
        measure,
        "grouping",
        block,
        statistic
    having count(*) > 1
)

select * from final

-- A statistic without estimate, p or interval says why.
with final as (
    select
        study,
        answer,
        measure,
        "grouping",
        block,
        statistic
    from inference
    where reason is null
        and (
            estimate is null
            or p is null
            or low is null
            or high is null
        )
)

select * from final

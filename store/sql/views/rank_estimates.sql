-- What is each statistic on ranks, computed from its units: a mean, a difference of two means, or a slope?
with final as (
    select
        study,
        answer,
        measure,
        "grouping",
        block,
        statistic,
        count(value) as n,
        case statistic
            when 'mean' then avg(value)
            when 'difference' then
                avg(value) filter (where sample = 'series') - avg(value) filter (where sample != 'series')
            when 'trend' then regr_slope(value, x)
        end as estimate
    from rank_units
    group by
        study,
        answer,
        measure,
        "grouping",
        block,
        statistic
)

select * from final

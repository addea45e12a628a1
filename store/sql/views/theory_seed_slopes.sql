-- What slope has each seed of a numerical experiment, over the points that are used in the fit?
with points as (
    select
        experiment,
        seed,
        claimed,
        case scale when 'log-log' then ln(x) else x end as place,
        ln(y) as height
    from theory
    where fitted
        and y > 0
        and (scale = 'log-linear' or x > 0)
),

final as (
    select
        experiment,
        seed,
        any_value(claimed) as claimed,
        count(*) as n_points,
        regr_slope(height, place) as slope
    from points
    group by all
    having count(distinct place) > 1
)

select * from final

-- What is the ratio of each instance to its bound: above 1 the bound fails, unless by rounding?
with final as (
    select
        *,
        case side when 'upper' then y / nullif(bound, 0) else bound / nullif(y, 0) end as ratio,
        case side
            when 'upper' then y <= bound * (1 + 1e-9) + floor
            else y >= bound * (1 - 1e-9) - floor
        end as holds_again
    from theory
    where bound is not null
)

select * from final

-- How much of its bound does each instance use up: above 1 it fails, unless rounding hides it?
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

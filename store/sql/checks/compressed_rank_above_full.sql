-- No part of a compressed model has a rank above its full width, or below 0.
with final as (
    select *
    from compressed_heads
    where rank > full_width
        or rank < 0
)

select * from final

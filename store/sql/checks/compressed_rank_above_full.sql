-- No part of a compressed model has a rank above its full width.
with final as (
    select *
    from compressed_heads
    where rank > full_width
)

select * from final

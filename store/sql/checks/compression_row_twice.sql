-- No compressed model, and no part of one, stands twice.
with rows as (
    select
        model,
        null as stack,
        null as layer,
        null as attention,
        null as part
    from compression
    union all by name
    select
        model,
        stack,
        layer,
        attention,
        part
    from compressed_heads
),

final as (
    select
        *,
        count(*) as n
    from rows
    group by all
    having count(*) > 1
)

select * from final

-- No head and no softmax head is measured twice on the same tokens.
with measured as (
    select
        'alignment' as measured,
        model,
        dataset,
        condition,
        stack,
        layer,
        head,
        0 as instance
    from alignment
    union all
    select
        'partition',
        model,
        dataset,
        condition,
        null,
        null,
        null,
        0
    from partition
    union all
    select
        'jacobian',
        model,
        dataset,
        condition,
        stack,
        layer,
        head,
        instance
    from jacobian
),

final as (
    select
        *,
        count(*) as n
    from measured
    group by
        all
    having count(*) > 1
)

select * from final

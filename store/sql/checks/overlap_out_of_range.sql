-- Overlaps lie in [0, 1].
with measured as (
    select
        model,
        dataset,
        condition,
        stack,
        layer,
        head,
        unnest([query, key, query_uncentred, key_uncentred]) as overlap
    from alignment
),

final as (
    select *
    from measured
    where overlap < 0
        or overlap > 1
        or isnan(overlap)
)

select * from final

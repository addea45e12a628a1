-- No dump file has two rows.
with final as (
    select
        kind,
        model,
        dataset,
        condition,
        count(*) as n
    from dumps
    group by
        kind,
        model,
        dataset,
        condition
    having count(*) > 1
)

select * from final

-- No model is listed twice.
with final as (
    select
        model,
        count(*) as n
    from checkpoints
    group by
        model
    having count(*) > 1
)

select * from final

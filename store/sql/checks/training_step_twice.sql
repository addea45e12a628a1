-- No step of a run is logged twice.
with final as (
    select
        model,
        step,
        count(*) as n
    from training
    group by
        model,
        step
    having count(*) > 1
)

select * from final

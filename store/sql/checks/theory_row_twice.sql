-- No instance and no point of an experiment stands twice.
with final as (
    select
        experiment,
        form,
        seed,
        instance,
        heads,
        x,
        setting,
        count(*) as n
    from theory
    group by
        all
    having count(*) > 1
)

select * from final

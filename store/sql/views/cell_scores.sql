-- What does each model score on a data set under a condition, whatever studies ask for it?
with final as (
    select
        model,
        dataset,
        condition,
        any_value(base_model) as base_model,
        any_value(wql) as wql,
        any_value(mase) as mase
    from scores
    group by
        model,
        dataset,
        condition
)

select * from final

-- What is the score of each model on a data set under a condition, whichever studies request it?
with final as (
    select
        model,
        dataset,
        condition,
        any_value(base_model) as base_model,
        any_value(wql) as wql,
        any_value(mase) as mase,
        any_value(mase_gluonts) as mase_gluonts
    from scores
    group by all
)

select * from final

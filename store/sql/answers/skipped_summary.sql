-- Which model was left out on which data set, at which stage, and for which reason?
with final as (
    select
        stage,
        model,
        dataset,
        condition,
        reason,
        sum(n)::bigint as n,
        count(distinct series) as n_series
    from skipped
    group by all
    order by stage, dataset, model, condition, reason
)

select * from final

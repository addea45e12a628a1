-- For how many random instances does each theorem's bound fail, as printed and as repaired, and which is the worst?
-- ratio: share of the bound that is used up; above 1 the bound fails. worst: the instance with the
-- largest ratio.
-- tsfmscope.theory.experiments.instance(statement, seed, instance) computes that instance
-- again.
with final as (
    select
        experiment,
        form,
        kind,
        count(*) as n,
        count(*) filter (where not holds) as violations,
        median(ratio) as ratio_median,
        max(ratio) as ratio_largest,
        arg_max(seed, ratio) as worst_seed,
        arg_max(instance, ratio) as worst_instance,
        arg_max(x, ratio) as worst_x,
        arg_max(y, ratio) as worst_y,
        arg_max(bound, ratio) as worst_bound,
        arg_max(setting, ratio) as worst_setting
    from theory_ratios
    group by all
    order by kind, experiment, form
)

select * from final

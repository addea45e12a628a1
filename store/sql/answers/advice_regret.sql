-- What does choosing by isotropy cost, and is that less than a validation window, the largest context or chance would?
-- Log NMSE over that of the best in hindsight, mean over data sets; ratio: exp of it, a geometric mean. advised_less: the
-- advice's regret less the rule's (negative: the advice is better); p flips the signs of data sets, p_models lets models
-- change places in all of them at once.
with rules (rule, position) as (
    values
        ('advised', 1),
        ('validation', 2),
        ('largest_context', 3),
        ('chance', 4)
),

sizes as (
    select
        study,
        measure,
        "grouping",
        sum(n_candidates)::bigint as n_candidates,
        sum(n_choices)::bigint as n_choices
    from advice_regrets
    group by
        study,
        measure,
        "grouping"
),

final as (
    select
        estimates.study,
        estimates.measure,
        estimates."grouping",
        rules.rule,
        estimates.n,
        sizes.n_choices,
        sizes.n_candidates,
        estimates.estimate as regret,
        regrets.low,
        regrets.high,
        exp(estimates.estimate) as ratio,
        less.estimate as advised_less,
        tests.low as advised_less_low,
        tests.high as advised_less_high,
        tests.p,
        tests.p_bh,
        tests.p_by,
        tests.n_tests,
        tests.p_smallest,
        models.p as p_models,
        case
            when tests.high < 0 and tests.p <= tests.alpha then 'better'
            when tests.low > 0 and tests.p <= tests.alpha then 'worse'
            when less.estimate is not null then 'undecided'
        end as advice_is,
        tests.method,
        models.method as method_models,
        tests.interval_method,
        coalesce(tests.reason, case when rules.rule = 'advised' or less.estimate is null then regrets.reason end) as reason,
        regrets.alpha,
        regrets.seed
    from advice_estimates as estimates
    inner join rules
        on estimates.statistic = 'regret_' || rules.rule
    inner join sizes
        on sizes.study = estimates.study
        and sizes.measure = estimates.measure
        and sizes."grouping" = estimates."grouping"
    left join advice_estimates as less
        on less.study = estimates.study
        and less.measure = estimates.measure
        and less."grouping" = estimates."grouping"
        and less.statistic = 'advised_less_' || rules.rule
    left join inference as regrets
        on regrets.answer = 'advice_regret'
        and regrets.study = estimates.study
        and regrets.measure = estimates.measure
        and regrets."grouping" = estimates."grouping"
        and regrets.statistic = estimates.statistic
    left join inference as tests
        on tests.answer = 'advice_regret'
        and tests.study = estimates.study
        and tests.measure = estimates.measure
        and tests."grouping" = estimates."grouping"
        and tests.statistic = 'advised_less_' || rules.rule
    left join inference as models
        on models.answer = 'advice_regret'
        and models.study = estimates.study
        and models.measure = estimates.measure
        and models."grouping" = estimates."grouping"
        and models.statistic = 'advised_less_' || rules.rule || '_models'
    order by
        estimates.study,
        estimates.measure,
        estimates."grouping",
        rules.position
)

select * from final

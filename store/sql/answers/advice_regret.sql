-- How much error does choosing by isotropy cost, compared with a validation window, the largest context or chance?
-- regret: log NMSE of the choice minus that of the best in hindsight, as a mean over data sets.
-- ratio: exp(regret), a geometric mean.
-- advised_less: regret of the advice minus regret of the rule; below 0 the advice is better.
-- p is that of sign flips of the differences of data sets. p_models (rule chance only) permutes the
-- isotropy of models, in the same way in all data sets.
-- Contexts that no series fills are not ranked; n_unfilled counts the candidates with such contexts.
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

unfilled as (
    select
        study,
        measure,
        count(*) as n
    from advice_candidates
    where not is_filled
    group by
        study,
        measure
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
        coalesce(unfilled.n, 0) as n_unfilled,
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
    left join unfilled
        on unfilled.study = estimates.study
        and unfilled.measure = estimates.measure
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

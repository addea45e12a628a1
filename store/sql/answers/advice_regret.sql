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

advice as (
    select
        *,
        regexp_replace(statistic, '^regret_|^advised_less_|_models$', '', 'g') as rule,
        replace(statistic, rule, 'RULE') as kind
    from inference
    where answer = 'advice_regret'
),

regrets as (
    select * from advice where kind = 'regret_RULE'
),

tests as (
    select * from advice where kind = 'advised_less_RULE'
),

models as (
    select * from advice where kind = 'advised_less_RULE_models'
),

choices as (
    select
        study,
        measure,
        unnest(['model_and_context', 'model', 'context']) as "grouping",
        dataset,
        unnest(['', condition, model]) as choice
    from advice_candidates
    where is_filled
),

choice_sizes as (
    select
        *,
        count(*) as n
    from choices
    group by all
    having n >= 2
),

sizes as (
    select
        study,
        measure,
        "grouping",
        count(*) as n_choices,
        sum(n)::bigint as n_candidates
    from choice_sizes
    group by all
),

unfilled as (
    select
        study,
        measure,
        count(*) as n_unfilled
    from advice_candidates
    where not is_filled
    group by all
),

final as (
    select
        study,
        measure,
        "grouping",
        rule,
        regrets.n,
        sizes.n_choices,
        sizes.n_candidates,
        coalesce(unfilled.n_unfilled, 0) as n_unfilled,
        regrets.estimate as regret,
        regrets.low,
        regrets.high,
        exp(regrets.estimate) as ratio,
        tests.estimate as advised_less,
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
            when tests.estimate is not null then 'undecided'
        end as advice_is,
        tests.method,
        models.method as method_models,
        tests.interval_method,
        coalesce(tests.reason, case when rule = 'advised' or tests.estimate is null then regrets.reason end) as reason,
        regrets.alpha,
        regrets.seed
    from regrets
    inner join rules
        using (rule)
    inner join sizes
        using (study, measure, "grouping")
    left join unfilled
        using (study, measure)
    left join tests
        using (study, measure, "grouping", rule)
    left join models
        using (study, measure, "grouping", rule)
    order by study, measure, "grouping", rules.position
)

select * from final

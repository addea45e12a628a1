-- What is the regret of each rule of choice, and of the advice minus each rule, as a mean over data sets [nats]?
with rules as (
    select
        study,
        measure,
        "grouping",
        dataset,
        unnest(['regret_advised', 'regret_validation', 'regret_largest_context', 'regret_chance',
            'advised_less_validation', 'advised_less_largest_context', 'advised_less_chance',
            'advised_less_chance_models']) as statistic,
        unnest([advised, validation, largest_context, chance,
            advised - validation, advised - largest_context, advised - chance,
            case when "grouping" != 'context' then advised - chance end]) as value
    from advice_regrets
),

final as (
    select
        study,
        'advice_regret' as answer,
        measure,
        "grouping",
        'all' as block,
        statistic,
        count(value) as n,
        avg(value) as estimate
    from rules
    where statistic != 'advised_less_chance_models'
        or "grouping" != 'context'
    group by
        study,
        measure,
        "grouping",
        statistic
)

select * from final

-- Which estimate does SQL compute from the rows for each statistic of `inference` (a check compares the two)?
with blocks as (
    select
        blocks.study,
        blocks.measure,
        blocks."grouping",
        blocks.block,
        blocks.n,
        blocks.spearman,
        kendall.kendall
    from correlation_blocks as blocks
    left join correlation_kendall as kendall
        on kendall.study = blocks.study
        and kendall.measure = blocks.measure
        and kendall."grouping" = blocks."grouping"
        and kendall.block = blocks.block
    where blocks."grouping" in ('per_model', 'within_dataset')
),

final as (
    select
        study,
        'correlation' as answer,
        measure,
        "grouping",
        'all' as block,
        'spearman' as statistic,
        n,
        spearman as estimate
    from correlation
    union all
    select
        study,
        'correlation',
        measure,
        'within_dataset',
        'all',
        'double_centred',
        n,
        double_centred
    from correlation_centred
    union all
    select
        study,
        case "grouping" when 'per_model' then 'correlation_by_model' else 'correlation_by_dataset' end,
        measure,
        "grouping",
        block,
        unnest(['spearman', 'kendall']),
        n,
        unnest([spearman, kendall])
    from blocks
    union all
    select
        study,
        case kind when 'dataset' then 'sign_test' else kind || '_effect' end,
        measure,
        kind,
        pair,
        statistic,
        n,
        estimate
    from pair_estimates
    union all
    select
        study,
        answer,
        measure,
        "grouping",
        block,
        statistic,
        n,
        estimate
    from rank_estimates
    union all
    select
        study,
        answer,
        measure,
        "grouping",
        block,
        statistic,
        n,
        estimate
    from advice_estimates
    union all
    select
        study,
        answer,
        measure,
        "grouping",
        block,
        statistic,
        n,
        estimate
    from population_estimates
)

select * from final

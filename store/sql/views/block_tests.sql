-- For each model over data sets, and each data set over models: do isotropy and log NMSE correlate?
with rhos as (
    select *
    from inference
    where answer in ('correlation_by_model', 'correlation_by_dataset')
        and statistic = 'spearman'
),

taus as (
    select *
    from inference
    where answer in ('correlation_by_model', 'correlation_by_dataset')
        and statistic = 'kendall'
),

final as (
    select
        study,
        measure,
        "grouping",
        block,
        blocks.n,
        blocks.n_models,
        blocks.n_datasets,
        rhos.estimate as spearman,
        rhos.low,
        rhos.high,
        rhos.p,
        rhos.p_bh,
        rhos.p_by,
        rhos.n_tests,
        rhos.p_smallest,
        rhos.critical,
        rhos.detectable,
        taus.estimate as kendall,
        blocks.pearson,
        rhos.method,
        rhos.interval_method,
        rhos.reason,
        rhos.seed
    from correlation_blocks as blocks
    left join rhos
        using (study, measure, "grouping", block)
    left join taus
        using (study, measure, "grouping", block)
    where "grouping" in ('per_model', 'within_dataset')
)

select * from final

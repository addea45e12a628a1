-- For each data set, does isotropy predict the forecasting error over models and conditions?
with final as (
    select
        study,
        measure,
        block as dataset,
        n,
        n_models,
        spearman,
        pearson
    from correlation_blocks
    where "grouping" = 'within_dataset'
    order by
        study,
        measure,
        dataset
)

select * from final

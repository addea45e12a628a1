-- For each model, does isotropy predict its forecasting error over data sets and conditions?
with final as (
    select
        study,
        measure,
        block as model,
        n,
        n_datasets,
        spearman,
        pearson
    from correlation_blocks
    where "grouping" = 'per_model'
    order by
        study,
        measure,
        model
)

select * from final

-- For each data set, does isotropy predict the forecasting error over models and conditions?
-- p permutes models together with their conditions. critical and detectable are values of |rho| for
-- as many independent models.
with final as (
    select
        blocks.study,
        blocks.measure,
        blocks.block as dataset,
        blocks.n,
        blocks.n_models,
        blocks.spearman,
        inference.low,
        inference.high,
        inference.p,
        inference.p_bh,
        inference.p_by,
        inference.n_tests,
        inference.p_smallest,
        inference.critical,
        inference.detectable,
        kendall.kendall,
        blocks.pearson,
        inference.method,
        inference.interval_method,
        inference.reason,
        inference.seed
    from correlation_blocks as blocks
    left join correlation_kendall as kendall
        on kendall.study = blocks.study
        and kendall.measure = blocks.measure
        and kendall."grouping" = blocks."grouping"
        and kendall.block = blocks.block
    left join inference
        on inference.answer = 'correlation_by_dataset'
        and inference.study = blocks.study
        and inference.measure = blocks.measure
        and inference."grouping" = blocks."grouping"
        and inference.block = blocks.block
        and inference.statistic = 'spearman'
    where blocks."grouping" = 'within_dataset'
    order by
        blocks.study,
        blocks.measure,
        dataset
)

select * from final

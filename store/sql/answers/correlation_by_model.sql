-- For each model, does isotropy predict its forecasting error over data sets and conditions?
-- p permutes data sets together with their conditions. critical and detectable are values of |rho|
-- for as many independent data sets.
-- Data sets differ in difficulty. A difference that changes both isotropy and error causes a
-- correlation by itself.
with final as (
    select
        blocks.study,
        blocks.measure,
        blocks.block as model,
        blocks.n,
        blocks.n_datasets,
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
        on inference.answer = 'correlation_by_model'
        and inference.study = blocks.study
        and inference.measure = blocks.measure
        and inference."grouping" = blocks."grouping"
        and inference.block = blocks.block
        and inference.statistic = 'spearman'
    where blocks."grouping" = 'per_model'
    order by
        blocks.study,
        blocks.measure,
        model
)

select * from final

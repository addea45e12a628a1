-- Does rank grow with depth, differ between time series and other data, or follow width, patch, heads or vocabulary?
-- Means (t interval), differences series less other (Welch), slopes against depth or log2 of what a study varies (t).
with final as (
    select
        estimates.study,
        estimates.measure,
        estimates."grouping",
        estimates.block,
        estimates.statistic,
        estimates.n,
        estimates.estimate,
        inference.low,
        inference.high,
        inference.p,
        inference.p_bh,
        inference.p_by,
        inference.n_tests,
        inference.method,
        inference.reason
    from rank_estimates as estimates
    left join inference
        on inference.study = estimates.study
        and inference.answer = estimates.answer
        and inference.measure = estimates.measure
        and inference."grouping" = estimates."grouping"
        and inference.block = estimates.block
        and inference.statistic = estimates.statistic
    where estimates.answer = 'rank_tests'
)

select * from final

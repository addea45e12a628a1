-- What is each statistic on ranks, with the interval and p-value of the stage statistics for the same units?
with final as (
    select
        estimates.*,
        inference.low,
        inference.high,
        inference.p,
        inference.p_bh,
        inference.p_by,
        inference.n_tests,
        inference.detectable,
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
)

select * from final

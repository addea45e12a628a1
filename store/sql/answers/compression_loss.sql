-- Does cutting the attention of a trained model cost accuracy, by method and by the share that is left?
-- Of a mean: the score's ratio to the original's, a geometric mean over data sets, with its interval; p tests 1.05. Of
-- overlap: its slope against the log2 of the share. Interval and p are Student's t over data sets or models.
with final as (
    select
        estimates.study,
        estimates."grouping" as method,
        estimates.block as model,
        estimates.measure,
        estimates.n,
        case
            when estimates.statistic = 'mean' then 1.05 * exp(estimates.estimate)
            else estimates.estimate
        end as estimate,
        case when estimates.statistic = 'mean' then 1.05 * exp(inference.low) else inference.low end as low,
        case when estimates.statistic = 'mean' then 1.05 * exp(inference.high) else inference.high end as high,
        inference.p,
        inference.p_bh,
        inference.p_by,
        inference.n_tests,
        inference.method as test,
        inference.reason
    from rank_estimates as estimates
    left join inference
        on inference.study = estimates.study
        and inference.answer = estimates.answer
        and inference.measure = estimates.measure
        and inference."grouping" = estimates."grouping"
        and inference.block = estimates.block
        and inference.statistic = estimates.statistic
    where estimates.answer = 'compression_loss'
)

select * from final

-- Do heads that widen with depth forecast better than heads of one width, pretrained at equal size, over seeds?
-- A pair's ratio is of scores of models of one seed, its geometric mean over data sets and then seeds; below 1 the first
-- is better. Interval and p are of Student's paired t over seeds, in logs.
with final as (
    select
        estimates.study,
        estimates."grouping" as family,
        estimates.block as pair,
        replace(estimates.measure, 'log ', '') as measure,
        estimates.n as n_seeds,
        exp(estimates.estimate) as ratio,
        exp(inference.low) as low,
        exp(inference.high) as high,
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
    where estimates.answer = 'flow_against_flat'
)

select * from final

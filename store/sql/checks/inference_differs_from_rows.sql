-- Estimates of the stage `statistics` and of SQL differ by at most 1e-9, and have the same number of units.
with final as (
    select
        inference.study,
        inference.answer,
        inference.measure,
        inference."grouping",
        inference.block,
        inference.statistic,
        inference.n as n_inference,
        estimates.n as n_rows,
        inference.estimate as estimate_inference,
        estimates.estimate as estimate_rows
    from inference
    full join inference_estimates as estimates
        on estimates.study = inference.study
        and estimates.answer = inference.answer
        and estimates.measure = inference.measure
        and estimates."grouping" = inference."grouping"
        and estimates.block = inference.block
        and estimates.statistic = inference.statistic
    -- A catalogue without rows of inference passes this check.
    where exists (select 1 from inference)
        and inference.answer is distinct from 'mixed_model'
        and (
            inference.n is distinct from coalesce(estimates.n, 0)
            or (inference.estimate is null) != (estimates.estimate is null)
            or abs(inference.estimate - estimates.estimate) > 1e-9
        )
)

select * from final

-- Does cutting the attention of a trained model cost accuracy, by method and by the share that is left?
-- Of a mean: the score's ratio to the original's, a geometric mean over data sets, with its interval; p tests 1.05. Of
-- overlap: its slope against the log2 of the share. Interval and p are Student's t over data sets or models.
with final as (
    select
        study,
        "grouping" as method,
        block as model,
        measure,
        n,
        case
            when statistic = 'mean' then 1.05 * exp(estimate)
            else estimate
        end as estimate,
        case when statistic = 'mean' then 1.05 * exp(low) else low end as low,
        case when statistic = 'mean' then 1.05 * exp(high) else high end as high,
        p,
        p_bh,
        p_by,
        n_tests,
        method as test,
        reason
    from tested_estimates
    where answer = 'compression_loss'
)

select * from final

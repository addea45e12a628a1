-- Does truncating the attention of a trained model cost accuracy, by method and by remaining share?
-- For a mean, estimate is the ratio of the score to the original's, as a geometric mean over data
-- sets; p tests the hypothesis that it is 1.05.
-- For the overlap, estimate is the slope against the log2 of the share.
-- The interval and p are Student's t over data sets or models.
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
    from inference
    where answer = 'compression_loss'
)

select * from final

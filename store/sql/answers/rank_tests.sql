-- Does rank grow with depth, differ between time series and other data, or follow width, patch, heads or vocabulary?
-- mean: with Student's t interval.
-- difference: mean of time series minus mean of other data, with Welch's t interval.
-- trend: slope against depth, or against the log2 of what the study varies, with Student's t interval.
with final as (
    select
        study,
        measure,
        "grouping",
        block,
        statistic,
        n,
        estimate,
        low,
        high,
        p,
        p_bh,
        p_by,
        n_tests,
        detectable,
        method,
        reason
    from inference
    where answer = 'rank_tests'
)

select * from final

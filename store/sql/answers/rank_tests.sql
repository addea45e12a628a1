-- Does rank grow with depth, differ between time series and other data, or follow width, patch, heads or vocabulary?
-- Means (t interval), differences series less other (Welch), slopes against depth or log2 of what a study varies (t).
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
        method,
        reason
    from tested_estimates
    where answer = 'rank_tests'
)

select * from final

-- For each pair of conditions: +1 if b has more isotropy, more error, or both changes are opposite; 0 if tied?
with questions as (
    select
        study,
        kind,
        measure,
        pair,
        half,
        "cluster",
        model,
        dataset,
        condition,
        is_filled,
        unnest([
            {'statistic': 'agreement', 'answer': agreement, 'change': null::double},
            {'statistic': 'more_isotropic', 'answer': isotropy_sign, 'change': isotropy_change},
            {'statistic': 'more_error', 'answer': log_nmse_sign, 'change': log_nmse_change}
        ], recursive := true)
    from condition_pairs
),

final as (
    select * replace (case when statistic = 'more_error' then 'log_nmse' else measure end as measure)
    from questions
    -- For two data sets, only the agreement has a meaning, because it is arbitrary which one is b.
    where (statistic = 'agreement' or kind != 'dataset')
        -- The error is the same for every measure, so it is counted for one of them only.
        and (statistic != 'more_error' or measure = 'zeta')
)

select * from final

-- For each pair of conditions and each question: +1 where b has more isotropy, more error, or both go opposite; 0: tied?
with questions as (
    select
        study,
        kind,
        measure,
        pair,
        "cluster",
        model,
        dataset,
        condition,
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
    where (statistic = 'agreement' or kind != 'dataset')  -- which data set is b says nothing
        and (statistic != 'more_error' or measure = 'zeta')  -- the error is the same beside every measure
)

select * from final

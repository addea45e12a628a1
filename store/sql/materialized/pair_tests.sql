-- For each question about pairs of conditions, what is the share or rho, with which interval and p-value?
-- A tie counts one half in a share. changes_spearman: mean over models of the correlation over data sets between the
-- changes of isotropy and of log NMSE.
with counts as (
    select
        study,
        kind,
        measure,
        pair,
        statistic,
        count(*) - count(answer) as n_null,
        count(*) filter (where not is_filled) as n_unfilled,
        count(answer) filter (where answer = 0) as n_ties,
        avg(change) as mean_change
    from pair_signs
    where half = 'explored'
    group by all
),

questions as (
    select * from counts
    union all by name
    select
        * exclude (statistic, n_ties, mean_change),
        'changes_spearman' as statistic
    from counts
    where statistic = 'agreement'
        and kind != 'dataset'
),

final as (
    select
        study,
        kind,
        measure,
        pair,
        statistic,
        inference.n,
        questions.n_null,
        questions.n_unfilled,
        questions.n_ties,
        inference.n_clusters,
        inference.estimate,
        inference.low,
        inference.high,
        inference.p,
        inference.p_bh,
        inference.p_by,
        inference.n_tests,
        inference.p_smallest,
        inference.critical,
        questions.mean_change,
        inference.p_unclustered,
        inference.method,
        inference.interval_method,
        inference.reason,
        inference.seed
    from questions
    left join (
        select
            * exclude ("grouping", block),
            "grouping" as kind,
            block as pair
        from inference
        where answer in ('sign_test', 'context_effect', 'noise_effect')
    ) as inference
        using (study, kind, measure, pair, statistic)
)

select * from final

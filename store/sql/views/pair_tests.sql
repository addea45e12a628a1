-- For each question about pairs of conditions, what is the share or rho, with which interval and p-value?
with answers (kind, answer) as (
    values
        ('dataset', 'sign_test'),
        ('context', 'context_effect'),
        ('noise', 'noise_effect')
),

final as (
    select
        pairs.study,
        pairs.kind,
        pairs.measure,
        pairs.pair,
        pairs.statistic,
        pairs.n,
        pairs.n_null,
        pairs.n_unfilled,
        pairs.n_ties,
        pairs.n_clusters,
        pairs.estimate,
        inference.low,
        inference.high,
        inference.p,
        inference.p_bh,
        inference.p_by,
        inference.n_tests,
        inference.p_smallest,
        inference.critical,
        pairs.mean_change,
        inference.p_unclustered,
        inference.method,
        inference.interval_method,
        inference.reason,
        inference.seed
    from pair_estimates as pairs
    inner join answers
        on answers.kind = pairs.kind
    left join inference
        on inference.answer = answers.answer
        and inference.study = pairs.study
        and inference.measure = pairs.measure
        and inference.block = pairs.pair
        and inference.statistic = pairs.statistic
)

select * from final

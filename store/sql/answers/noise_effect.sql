-- With a noisier context, are states more isotropic, is the error larger, and do the two go against each other?
-- Shares of (model, data set) in which it is so; p: all 2^C flips of whole data sets.
-- changes_spearman: rho of the two changes over data sets, mean over models; p: data sets change places in all models.
-- Where the noise moves isotropy and error on most data sets, agreement follows from the two and is no third finding.
with final as (
    select
        pairs.study,
        pairs.measure,
        pairs.pair,
        pairs.statistic,
        pairs.n,
        pairs.n_null,
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
    left join inference
        on inference.answer = 'noise_effect'
        and inference.study = pairs.study
        and inference.measure = pairs.measure
        and inference.block = pairs.pair
        and inference.statistic = pairs.statistic
    where pairs.kind = 'noise'
    order by
        pairs.study,
        pairs.measure,
        pairs.pair,
        pairs.statistic
)

select * from final

-- Of two data sets of one domain, does the one with the more isotropic states have the lower NMSE?
-- p: all 2^C flips of whole pairs, which all models share; p_unclustered takes models as independent: no evidence.
-- Data sets of a domain differ in difficulty: one that moves isotropy and error alike makes agreement of its own.
with final as (
    select
        pairs.study,
        pairs.measure,
        pairs.pair,
        pairs.n,
        pairs.n_null,
        pairs.n_ties,
        pairs.n_clusters,
        pairs.estimate as share,
        inference.low,
        inference.high,
        inference.p,
        inference.p_bh,
        inference.p_by,
        inference.n_tests,
        inference.p_smallest,
        inference.critical,
        inference.p_unclustered,
        inference.method,
        inference.interval_method,
        inference.reason,
        inference.seed
    from pair_estimates as pairs
    left join inference
        on inference.answer = 'sign_test'
        and inference.study = pairs.study
        and inference.measure = pairs.measure
        and inference.block = pairs.pair
        and inference.statistic = pairs.statistic
    where pairs.kind = 'dataset'
    order by
        pairs.study,
        pairs.measure,
        pairs.pair
)

select * from final

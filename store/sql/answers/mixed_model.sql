-- By how many nats does log NMSE change per s.d. of isotropy, with effects of data sets and models (sensitivity check)?
-- DuckDB cannot compute the slope from these tables; the statistics stage estimates it with
-- statsmodels.
with counts as (
    select
        study,
        measure,
        count(*) as n,
        stddev_pop(isotropy) as isotropy_sd
    from correlation_units
    group by all
),

final as (
    select
        counts.study,
        counts.measure,
        counts.n,
        inference.n_clusters as n_datasets,
        counts.isotropy_sd,
        inference.estimate as slope,
        inference.low,
        inference.high,
        inference.p,
        inference.p_bh,
        inference.p_by,
        inference.n_tests,
        inference.method,
        inference.reason
    from counts
    left join inference
        on inference.answer = 'mixed_model'
        and inference.study = counts.study
        and inference.measure = counts.measure
    order by counts.study, counts.measure
)

select * from final

-- What did we measure of each quantity that Yu et al. 2026 print for compressed models, with which interval?
-- Intervals come out of table inference: Student's t over data sets, or over seeds if a line has
-- several. time: ratio of the seconds of forecast jobs, which ran next to other jobs, to those of the
-- dense model, as a geometric mean. space is absent, because no job measures memory.
with cut as (
    select
        inference.study,
        checkpoints.family,
        checkpoints.source,
        inference.block as model,
        'svd' as schedule,
        compression.rank_ratio as size,
        inference.answer,
        inference.measure,
        inference.estimate,
        inference.low,
        inference.high,
        inference.n,
        inference.reason
    from inference
    inner join compression
        on compression.model = inference.block
    inner join checkpoints
        on checkpoints.model = compression.base_model
    where inference.answer in ('compression_loss', 'compression_fidelity')
        and inference."grouping" = 'svd'
        and inference.statistic = 'mean'
),

lines as (
    select
        study,
        family,
        line,
        any_value(source) as source,
        any_value(schedule) as schedule,
        any_value(growth) as growth,
        any_value(size) as size,
        case when count(*) = 1 then any_value(model) else line || ', ' || count(*) || ' seeds' end as model,
        any_value(is_reused) as is_reused
    from pretrained_lines as narrow
    where not is_shared
        and kinds is null
    group by
        study,
        family,
        line
),

pretrained as (
    select
        lines.*,
        inference.answer,
        inference.measure,
        inference.estimate,
        inference.low,
        inference.high,
        inference.n,
        inference.reason
    from lines
    inner join inference
        on inference.study = lines.study
        and inference.answer = 'pretrained_loss'
        and inference."grouping" = lines.family
        and inference.block = lines.line
),

tested as (
    select * from cut
    union all by name
    select * from pretrained
),

scales as (
    -- quantity decides whether an estimate is a logarithm; factor is the ratio at an estimate of 0.
    select
        *,
        case
            when starts_with(measure, 'log WQL') then 'WQL'
            when starts_with(measure, 'log MASE') then 'MASE'
            when measure = 'log LPPL' then 'LPPL'
            else 'overlap'
        end as quantity,
        case when answer = 'compression_loss' then 1.05 else 1.0 end as factor
    from tested
),

rated as (
    select
        * exclude (answer, measure, estimate, low, high, factor, reason),
        case when quantity = 'overlap' then 1 + estimate else factor * exp(estimate) end as measured,
        case when quantity = 'overlap' then 1 + low else factor * exp(low) end as low,
        case when quantity = 'overlap' then 1 + high else factor * exp(high) end as high,
        reason as no_interval
    from scales
),

clocked as (
    select
        forecasts.study,
        forecasts.model,
        forecasts.dataset,
        forecasts.condition,
        any_value(timings.seconds) as seconds
    from forecasts
    inner join timings
        on timings.key = forecasts.job_key
        and timings.stage = 'forecasts'
    where forecasts.model in (select unnest([model, base_model]) from pretrained_lines)
    group by all
),

times as (
    select
        narrow.study,
        narrow.family,
        narrow.line,
        exp(avg(ln(nullif(clocked.seconds, 0) / nullif(dense.seconds, 0)))) as measured,
        count(*) as n
    from pretrained_lines as narrow
    inner join clocked
        using (study, model)
    inner join clocked as dense
        on dense.study = narrow.study
        and dense.model = narrow.base_model
        and dense.dataset = clocked.dataset
        and dense.condition = clocked.condition
    group by all
),

final as (
    select * from rated
    union all by name
    select
        lines.*,
        'time' as quantity,
        times.measured,
        times.n,
        'times of one run, next to other jobs' as no_interval
    from lines
    inner join times
        using (study, family, line)
)

select * from final

-- What does each compressed model save, and what does it lose, as ratios to its base?
-- WQL (pooled over series), MASE (mean over series) and seconds of forecast jobs: geometric means over the n_cells data
-- sets and conditions that both were scored on; overlap, lppl and state_error: means over those of table fidelity.
-- time_ratio is the pipeline's own clock, jobs beside other jobs: bench/compression.py measures time. What an actor does
-- first with a model is slower (caches, lazy imports) and left out where other cells were clocked.
with scored as (
    select
        model,
        dataset,
        condition,
        any_value(wql_pooled) as wql,
        any_value(mase) as mase
    from scores
    group by
        model,
        dataset,
        condition
),

jobs as (
    select distinct
        job_key,
        model,
        dataset,
        condition
    from forecasts
),

timed as (
    select
        jobs.*,
        timings.seconds,
        row_number() over (
            partition by timings.actor, jobs.model
            order by timings.started, timings.key
        ) = 1 as is_first
    from jobs
    inner join timings
        on timings.key = jobs.job_key
        and timings.stage = 'forecasts'
),

clocked as (
    select
        model,
        dataset,
        condition,
        any_value(seconds) as seconds,
        any_value(is_first) as is_first
    from timed
    group by
        model,
        dataset,
        condition
),

ratios as (
    select
        compression.model,
        scored.wql / nullif(base.wql, 0) as wql,
        scored.mase / nullif(base.mase, 0) as mase,
        clocked.seconds / nullif(base_clocked.seconds, 0) as seconds,
        clocked.is_first or base_clocked.is_first as is_first
    from compression
    inner join scored
        on scored.model = compression.model
    inner join scored as base
        on base.model = compression.base_model
        and base.dataset = scored.dataset
        and base.condition = scored.condition
    left join clocked
        on clocked.model = scored.model
        and clocked.dataset = scored.dataset
        and clocked.condition = scored.condition
    left join clocked as base_clocked
        on base_clocked.model = base.model
        and base_clocked.dataset = base.dataset
        and base_clocked.condition = base.condition
),

means as (
    select
        model,
        count(*) as n_cells,
        exp(avg(ln(wql)) filter (where wql > 0)) as wql_ratio,
        exp(avg(ln(mase)) filter (where mase > 0)) as mase_ratio,
        exp(
            coalesce(
                avg(ln(seconds)) filter (where seconds > 0 and not is_first),
                avg(ln(seconds)) filter (where seconds > 0)
            )
        ) as time_ratio
    from ratios
    group by
        model
),

distances as (
    select
        model,
        avg(overlap) as overlap,
        avg(lppl) as lppl,
        avg(state_error) as state_error
    from (
        select distinct * exclude (study)
        from fidelity
    )
    group by
        model
),

final as (
    select
        compression.base_model,
        compression.method,
        compression.model,
        compression.rank,
        compression.rank_ratio,
        compression.size_ratio,
        compression.attention_ratio,
        compression.error,
        coalesce(means.n_cells, 0) as n_cells,
        means.wql_ratio,
        means.mase_ratio,
        means.time_ratio,
        distances.overlap,
        distances.lppl,
        distances.state_error,
        timings.seconds as compression_seconds
    from compression
    left join means
        on means.model = compression.model
    left join distances
        on distances.model = compression.model
    left join timings
        on timings.key = compression.job_key
        and timings.stage = 'compression'
)

select * from final
order by
    base_model,
    method,
    attention_ratio

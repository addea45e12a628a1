-- How much does each compressed model save, and how much accuracy does it lose, as ratios to the original?
-- wql_ratio (WQL pooled over series) and mase_ratio (MASE averaged over series, with the season of
-- GluonTS as in printed tables): geometric means over the n_cells data sets and conditions with
-- scores of both models.
-- overlap, lppl, state_error: means over the rows of table fidelity.
-- time_ratio: seconds of warm forecast jobs (view warm_forecasts) divided by those of the base in
-- the same run, node and device; null if there is no such pair. The jobs ran next to other jobs;
-- bench/compression.py measures time without them.
with ratios as (
    select
        compression.model,
        scored.wql / nullif(base.wql, 0) as wql,
        scored.mase_gluonts / nullif(base.mase_gluonts, 0) as mase
    from compression
    inner join cell_scores as scored
        on scored.model = compression.model
    inner join cell_scores as base
        on base.model = compression.base_model
        and base.dataset = scored.dataset
        and base.condition = scored.condition
),

means as (
    select
        model,
        count(*) as n_cells,
        exp(avg(ln(wql)) filter (where wql > 0)) as wql_ratio,
        exp(avg(ln(mase)) filter (where mase > 0)) as mase_ratio
    from ratios
    group by all
),

times as (
    select
        compression.model,
        exp(avg(ln(compressed.seconds / base.seconds))) as time_ratio
    from compression
    inner join warm_forecasts as compressed
        on compressed.model = compression.model
    inner join warm_forecasts as base
        on base.model = compression.base_model
        and base.dataset = compressed.dataset
        and base.condition = compressed.condition
        and base.run = compressed.run
        and base.node = compressed.node
        and base.device = compressed.device
    group by all
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
    group by all
),

final as (
    select
        compression.base_model,
        compression.method,
        compression.model,
        compression.size_parameter,
        compression.size_rule,
        compression.rank_ratio,
        compression.size_ratio,
        compression.attention_ratio,
        compression.error,
        coalesce(means.n_cells, 0) as n_cells,
        means.wql_ratio,
        means.mase_ratio,
        times.time_ratio,
        distances.overlap,
        distances.lppl,
        distances.state_error,
        timings.seconds as compression_seconds
    from compression
    left join means
        on means.model = compression.model
    left join times
        on times.model = compression.model
    left join distances
        on distances.model = compression.model
    left join timings
        on timings.key = compression.job_key
        and timings.stage = 'compression'
)

select * from final
order by base_model, method, attention_ratio

-- Accuracy against time, relative to the dense model
with recursive bases as ( -- of all studies: a model between a compressed one and its root may be in another study
    select model, base_model
    from forecasts
    where base_model is not null
    union
    select model, base_model
    from compression
),

ancestors as ( -- each model with all models that it is derived from
    select
        model,
        base_model as root
    from bases
    union
    select ancestors.model, bases.base_model
    from ancestors
    inner join bases
        on bases.model = ancestors.root
),

windows as (
    select
        forecasts.*,
        baselines.model is not null as is_baseline
    from forecasts
    left join baselines
        on baselines.model = forecasts.model
    where forecasts.study = $study
),

common_windows as ( -- windows that all models of the study forecast
    select dataset, condition, series
    from windows
    group by all
    having bool_and(n_future > 0 and not starts_with(coalesce(reason, ''), 'not forecast'))
),

cells as (
    select
        windows.model,
        any_value(windows.base_model) as base_model,
        bool_or(windows.is_baseline) as is_baseline,
        windows.dataset,
        windows.condition,
        count(*) as n_windows,
        sum(windows.quantile_loss) as loss,
        avg(windows.mase) as mase
    from windows
    semi join common_windows
        using (dataset, condition, series)
    group by all
),

job_times as ( -- seconds per series of warm jobs
    select
        warm.* exclude (seconds),
        warm.seconds / jobs.n as seconds
    from warm_forecasts as warm
    inner join (select job_key, count(*) as n from windows group by all) as jobs
        on jobs.job_key = warm.job_key
),

time_ratios as ( -- between jobs of the same run, node and device; baselines always run on the CPU
    select
        dense.model as base,
        other.model,
        exp(avg(ln(other.seconds / dense.seconds))) as time_ratio,
        exp(avg(ln(other.seconds))) as seconds
    from job_times as dense
    inner join job_times as other
        on other.dataset = dense.dataset
        and other.condition = dense.condition
        and other.run = dense.run
        and other.node = dense.node
        and (other.device = dense.device or other.model in (select model from baselines))
    group by all
),

ratios as (
    select
        dense.model as base,
        any_value(dense_checkpoints.family) as family,
        other.model,
        case
            when other.is_baseline then 'baseline'
            when other.base_model is null then 'dense'
            when compression.method is not null then compression.method
            when checkpoints.heads is not null then 'other' -- pretrained with narrow heads
            else 'other precision' -- the same weights, such as in bfloat16
        end as kind,
        any_value(compression.attention_ratio) as attention_ratio,
        count(*) as n_cells,
        sum(other.n_windows)::bigint as n_windows,
        exp(avg(ln(nullif(other.loss, 0) / nullif(dense.loss, 0)))) as wql_ratio,
        exp(avg(ln(nullif(other.mase, 0) / nullif(dense.mase, 0)))) as mase_ratio,
        any_value(time_ratios.time_ratio) as time_ratio,
        any_value(time_ratios.seconds) as seconds
    from cells as dense
    inner join cells as other
        on other.dataset = dense.dataset
        and other.condition = dense.condition
        and (
            other.model = dense.model
            or other.is_baseline
            or (other.model, dense.model) in (select (model, root) from ancestors)
        )
    left join compression
        on compression.model = other.model
    left join checkpoints
        on checkpoints.model = other.model
    left join checkpoints as dense_checkpoints
        on dense_checkpoints.model = dense.model
    left join time_ratios
        on time_ratios.base = dense.model
        and time_ratios.model = other.model
    where dense.base_model is null
        and not dense.is_baseline
    group by
        dense.model,
        other.model,
        kind
)

select
    *,
    not exists (
        select 1
        from ratios as other
        where other.base = ratios.base
            and other.time_ratio <= ratios.time_ratio
            and other.wql_ratio <= ratios.wql_ratio
            and (other.time_ratio < ratios.time_ratio or other.wql_ratio < ratios.wql_ratio)
    ) as on_frontier
from ratios
order by base, kind, time_ratio, model

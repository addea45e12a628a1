-- Accuracy against time, relative to the dense model
with recursive made as ( -- of every study, since the model between a cut one and its root may be of another
    select
        model,
        base_model
    from forecasts
    where base_model is not null
    union
    select
        model,
        base_model
    from compression
),

lines as ( -- each model and all that it comes from, as a compressed one of a model that is read in bfloat16
    select
        model,
        base_model as root
    from made
    union
    select
        lines.model,
        made.base_model
    from lines
    inner join made
        on made.model = lines.root
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

common as ( -- windows that all of the study have a forecast of
    select
        dataset,
        condition,
        series
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
    semi join common
        on common.dataset = windows.dataset
        and common.condition = windows.condition
        and common.series = windows.series
    group by
        windows.model,
        windows.dataset,
        windows.condition
),

clocked as ( -- seconds a series of warm jobs
    select
        warm.* exclude (seconds),
        warm.seconds / jobs.n as seconds
    from warm_forecasts as warm
    inner join (select job_key, count(*) as n from windows group by all) as jobs
        on jobs.job_key = warm.job_key
),

times as ( -- of two jobs of one run, node and device alone; baselines have none but the processor
    select
        dense.model as base,
        one.model,
        exp(avg(ln(one.seconds / dense.seconds))) as time_ratio,
        exp(avg(ln(one.seconds))) as seconds
    from clocked as dense
    inner join clocked as one
        on one.dataset = dense.dataset
        and one.condition = dense.condition
        and one.run = dense.run
        and one.node = dense.node
        and (one.device = dense.device or one.model in (select model from baselines))
    group by
        dense.model,
        one.model
),

ratios as (
    select
        dense.model as base,
        any_value(dense_checkpoints.family) as family,
        one.model,
        case
            when one.is_baseline then 'baseline'
            when one.base_model is null then 'dense'
            when compression.method is not null then compression.method
            when checkpoints.heads is not null then 'other' -- pretrained narrow
            else 'read otherwise' -- the same weights, as in bfloat16
        end as kind,
        any_value(compression.attention_ratio) as attention_ratio,
        count(*) as n_cells,
        sum(one.n_windows)::bigint as n_windows,
        exp(avg(ln(nullif(one.loss, 0) / nullif(dense.loss, 0)))) as wql_ratio,
        exp(avg(ln(nullif(one.mase, 0) / nullif(dense.mase, 0)))) as mase_ratio,
        any_value(times.time_ratio) as time_ratio,
        any_value(times.seconds) as seconds
    from cells as dense
    inner join cells as one
        on one.dataset = dense.dataset
        and one.condition = dense.condition
        and (
            one.model = dense.model
            or one.is_baseline
            or (one.model, dense.model) in (select (model, root) from lines)
        )
    left join compression
        on compression.model = one.model
    left join checkpoints
        on checkpoints.model = one.model
    left join checkpoints as dense_checkpoints
        on dense_checkpoints.model = dense.model
    left join times
        on times.base = dense.model
        and times.model = one.model
    where dense.base_model is null
        and not dense.is_baseline
    group by
        dense.model,
        one.model,
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

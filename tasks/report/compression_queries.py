"""SQL queries for the figures of compressed models, on the tables and views of results.duckdb."""

from __future__ import annotations

from tsfmscope.tasks.report.query import Query

FRONTIER = Query(
    "Accuracy against time, relative to the dense model",
    """with recursive made as ( -- of every study, since the model between a cut one and its root may be of another
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
    where forecasts.study = {study}
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
order by base, kind, time_ratio, model""",
)
COMPRESSED = Query(
    "What cutting the attention costs, by method and size, the paper's Table 2 beside it",
    """with asked as (
    select distinct
        found.model,
        checkpoints.family
    from (
        select model from forecasts where study = {study}
        union all
        select model from fidelity where study = {study}
    ) as found
    inner join checkpoints
        on checkpoints.model = found.model
)

select
    svd.whose,
    svd.family,
    svd.model,
    svd.method,
    coalesce(svd.attention_ratio, svd.rank_ratio) as size,
    svd.rank_ratio,
    svd.wql_ratio,
    svd.mase_ratio,
    svd.overlap,
    svd.lppl
from svd_compression as svd
where (svd.whose = 'published' and svd.family in (select family from asked))
    or svd.model in (select model from asked)
order by svd.family, svd.whose, svd.method, svd.model, size""",
)
PRETRAINED = Query(
    "Models pretrained with narrow heads, relative to the dense one of their seed, the paper's beside them",
    """with scored as (
    select
        scores.model,
        scores.base_model,
        scores.rank,
        scores.dataset,
        scores.condition,
        scores.wql,
        scores.mase
    from scores
    where scores.study = {study}
),

measured as (
    select
        'measured' as whose,
        checkpoints.family,
        regexp_replace(one.model, '[-_]?[0-9.]*[-_][0-9]+$', '') as line, -- names end in size and seed
        one.model,
        coalesce(
            list_filter(
                json_keys(any_value(checkpoints.heads)::json), lambda key: key not in ('factors', 'attention')
            )[1],
            'dense'
        ) as schedule,
        any_value(one.rank) as size,
        count(*) as n_cells,
        exp(avg(ln(nullif(one.wql, 0) / nullif(dense.wql, 0)))) as WQL,
        exp(avg(ln(nullif(one.mase, 0) / nullif(dense.mase, 0)))) as MASE
    from scored as one
    inner join scored as dense
        on dense.model = one.base_model
        and dense.dataset = one.dataset
        and dense.condition = one.condition
    inner join checkpoints
        on checkpoints.model = one.model
    group by
        checkpoints.family,
        one.model
),

ours as (
    unpivot measured
    on WQL, MASE
    into
        name quantity
        value value
),

figures as (
    select figure
    from studies
    where study = {study}
)

select
    whose,
    family,
    line,
    model,
    schedule,
    size,
    quantity,
    value
from ours
union all by name
select
    'published' as whose,
    family,
    'printed, ' || line as line,
    null as model,
    case when line = 'flat' then 'flat' else 'flow' end as schedule,
    size,
    quantity,
    value
from published_pretrained
where figure in (select figure from figures)
    and first < 64
    and size is not null
order by quantity desc, family, whose, line, size, model""",
)
OF_PLOT = {
    "frontier": {"frontier": FRONTIER},
    "compressed": {"compressed": COMPRESSED},
    "pretrained": {"pretrained": PRETRAINED},
}

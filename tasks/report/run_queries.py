"""SQL queries on the run itself: training, skipped inputs, failures, and the timeline of actors."""

from __future__ import annotations

from tsfmscope.tasks.report.query import Query

RUN_QUERIES: dict[str, Query] = {
    "skill": Query(
        "Skill of the models",
        """select
    model,
    sine_error,
    n_windows,
    n_datasets,
    n_seasonal,
    wql_vs_median,
    low,
    high,
    wql_vs_seasonal,
    seasonal_low,
    seasonal_high
from skill
order by model""",
    ),
    "training": Query(
        "Training",
        """select
    model,
    step,
    loss,
    learning_rate
from training
order by model, step""",
    ),
    "checkpoints": Query(
        "The models",
        """select
    model,
    family,
    source,
    ref,
    parameters,
    bytes,
    license
from checkpoints
order by model""",
    ),
    "skipped": Query(
        "What was skipped, and why",
        """select
    stage,
    coalesce(model, 'every model') as model,
    dataset,
    coalesce(condition, 'every condition') as condition,
    reason,
    sum(n)::bigint as n
from skipped
group by all
order by stage, model, dataset, condition, reason""",
    ),
    "failures": Query(
        "Jobs that failed",
        """select
    stage,
    error,
    any_value(message) as example,
    count(*) as n
from failures
group by all
order by stage, error""",
    ),
    "timeline": Query(
        "How the run went",
        """select
    stage,
    lane,
    what,
    subject,
    began,
    seconds,
    share,
    jobs
from timeline_bars
order by all""",
    ),
    "idle_share": Query(
        "Idle share of the actors",
        """select
    stage,
    coalesce(actor, 'all') as actor,
    node,
    jobs,
    failed,
    actors,
    span_seconds as span_s,
    busy_seconds as busy_s,
    round(loading_share, 4) as loading_share,
    round(idle_share, 4) as idle_share,
    outside_seconds as outside_s
from idle_share
qualify run = max(run) over (partition by stage)
order by run, stage, actor is not null, node, actor""",
    ),
    "runs": Query(
        "Provenance",
        """select
    stage,
    started,
    seconds,
    jobs,
    done,
    reused,
    failed,
    commit,
    versions,
    hardware,
    cpus,
    gpus,
    seed
from runs
qualify row_number() over (partition by stage order by started desc) = 1
order by started""",
    ),
}

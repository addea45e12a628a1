-- Which actor ran which job when, in each run of a stage, and for how long was it busy?
-- A row is a job together with the load before it. began, ended: seconds since the start of the
-- run's first job or of the load before it. busy_seconds: seconds of the row that no earlier job of
-- the actor covers.
-- run: start of the run. A killed run has no row in the table of runs, so its jobs have no run,
-- began or ended.
-- All times are wall-clock times. A job that was moved or tried again has only its last time.
with ended_runs as (
    select
        stage,
        started as run,
        started + to_microseconds((1e6 * seconds)::bigint) as over
    from runs
),

timed as (
    select
        timings.stage,
        case when ended_runs.run <= timings.started then ended_runs.run end as run,
        timings.node,
        timings.actor,
        timings.device,
        timings.key,
        timings.subject,
        epoch_us(timings.started) / 1e6 - timings.load_seconds as start_s,
        epoch_us(timings.started) / 1e6 + timings.seconds as end_s,
        timings.load_seconds,
        timings.seconds
    from timings
    asof left join ended_runs
        on ended_runs.stage = timings.stage
        and ended_runs.over >= timings.started
),

placed as (
    select
        *,
        min(start_s) over (partition by stage, run) as zero_s,
        max(end_s) over (
            partition by stage, run, node, actor
            order by start_s, end_s, key
            rows between unbounded preceding and 1 preceding
        ) as covered_s
    from timed
),

final as (
    select
        placed.stage,
        placed.run,
        placed.node,
        placed.actor,
        placed.device,
        placed.subject,
        failures.error,
        placed.key,
        case when placed.run is not null then placed.start_s - placed.zero_s end as began,
        case when placed.run is not null then placed.end_s - placed.zero_s end as ended,
        placed.load_seconds,
        placed.seconds,
        greatest(0, placed.end_s - greatest(placed.start_s, coalesce(placed.covered_s, placed.start_s))) as busy_seconds
    from placed
    left join failures
        on failures.key = placed.key
    order by placed.stage, placed.run, placed.node, placed.actor, began, placed.key
)

select * from final

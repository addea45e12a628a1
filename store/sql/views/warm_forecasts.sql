-- Which forecast jobs were timed with a loaded model, in which run of the stage, and on which device?
-- Times of two models are comparable only within one run, node and device, because an earlier run's
-- jobs ran next to other jobs. An actor's first job with a model is excluded, because it is slower
-- (caches, lazy imports). Jobs of a killed run are excluded, because it has no row in the table of
-- runs.
with ended_runs as (
    select
        started as run,
        started + to_microseconds((1e6 * seconds)::bigint) as over
    from runs
    where stage = 'forecasts'
),

jobs as (
    select distinct job_key, model, dataset, condition
    from forecasts
),

placed as (
    select
        jobs.*,
        case when ended_runs.run <= timings.started then ended_runs.run end as run,
        timings.node,
        -- The GPUs of a node are treated as equal.
        regexp_replace(timings.device, ':[0-9]+$', '') as device,
        timings.actor,
        timings.started,
        timings.seconds
    from timings
    inner join jobs
        on jobs.job_key = timings.key
    asof left join ended_runs
        on ended_runs.over >= timings.started
    where timings.stage = 'forecasts'
),

final as (
    select
        job_key,
        model,
        dataset,
        condition,
        run,
        node,
        device,
        seconds
    from placed
    where run is not null
        and seconds > 0
    qualify row_number() over (
        partition by run, node, actor, model
        order by started, job_key
    ) > 1
)

select * from final

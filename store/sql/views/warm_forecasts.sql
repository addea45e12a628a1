-- Which forecast jobs were clocked warm, in which run of the stage, and where?
-- Times of two models may be held against each other within one run, node and device only: what an earlier run left was
-- clocked beside other jobs. What an actor does first with a model is slower (caches, lazy imports) and not here, nor
-- is what a killed run did, which leaves no row of its own.
with ended_runs as (
    select
        started as run,
        started + to_microseconds((1e6 * seconds)::bigint) as over
    from runs
    where stage = 'forecasts'
),

jobs as (
    select distinct
        job_key,
        model,
        dataset,
        condition
    from forecasts
),

placed as (
    select
        jobs.*,
        case when ended_runs.run <= timings.started then ended_runs.run end as run,
        timings.node,
        regexp_replace(timings.device, ':[0-9]+$', '') as device,  -- the GPUs of a node are taken for alike
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

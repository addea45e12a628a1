-- Which bars does the timeline plot draw for the last run of each stage that ran jobs, with which length and load?
-- A lane is an actor, or a node if the stage has more than 24 actors. With at most 300 jobs and 24
-- actors, a bar is one job or the load before it. Otherwise a bar is the work of a lane for one
-- subject in one of 25 to 150 equal parts of the run. share: that work divided by the bar's time
-- and by the number of the lane's actors.
with last_runs as (
    select
        stage,
        max(run) as run
    from timeline
    where run is not null
    group by
        stage
),

jobs as (
    select
        timeline.*,
        count(*) over (partition by timeline.stage) as n_jobs,
        max(timeline.ended) over (partition by timeline.stage) as span_s
    from timeline
    inner join last_runs
        on last_runs.stage = timeline.stage
        and last_runs.run = timeline.run
),

actors as (
    select
        stage,
        node,
        actor,
        count(*) over (partition by stage) as in_stage,
        count(distinct node) over (partition by stage) as nodes,
        count(*) over (partition by stage, node) as on_node
    from jobs
    group by
        stage,
        node,
        actor
),

laned as (
    select
        jobs.*,
        case
            when actors.in_stage > 24 then jobs.node
            when actors.nodes = 1 then jobs.actor
            else jobs.actor || ' · ' || jobs.node
        end as lane,
        case when actors.in_stage > 24 then actors.on_node else 1 end as lane_actors,
        jobs.n_jobs <= 300 and actors.in_stage <= 24 as singly,
        greatest(25, least(150, 600 // case when actors.in_stage > 24 then actors.nodes else actors.in_stage end)) as parts
    from jobs
    inner join actors
        on actors.stage = jobs.stage
        and actors.node = jobs.node
        and actors.actor = jobs.actor
),

pieces as (
    select
        * exclude (began, ended),
        'load' as what,
        began as left_s,
        began + load_seconds as right_s
    from laned
    where load_seconds > 0
    union all by name
    select
        * exclude (began, ended),
        'job' as what,
        began + load_seconds as left_s,
        ended as right_s
    from laned
),

cut as (
    select
        *,
        span_s / parts as width_s,
        unnest(range(
            least(parts - 1, floor(left_s / nullif(span_s, 0) * parts)::bigint),
            least(parts, greatest(
                ceil(right_s / nullif(span_s, 0) * parts)::bigint,
                1 + least(parts - 1, floor(left_s / nullif(span_s, 0) * parts)::bigint)
            ))
        )) as part
    from pieces
    where not singly
),

final as (
    select
        stage,
        run,
        lane,
        what,
        subject,
        left_s as began,
        right_s - left_s as seconds,
        1.0::double as share,
        1 as jobs
    from pieces
    where singly
    union all
    select
        stage,
        run,
        lane,
        what,
        subject,
        part * any_value(width_s),
        any_value(width_s),
        least(1, sum(greatest(0, least(right_s, (part + 1) * width_s) - greatest(left_s, part * width_s)))
            / any_value(width_s * lane_actors)),
        count(*)
    from cut
    group by
        stage,
        run,
        lane,
        what,
        subject,
        part
    order by
        stage,
        lane,
        began,
        what,
        subject
)

select * from final

-- For what share of a run's time were its actors idle: all together (actor null), and each actor on its own?
-- idle_share = 1 - busy / (actors x span). Time spent loading a model counts as busy; loading_share
-- is its share.
-- In a row of all actors (actor null), span is the time between the start of the run's first job
-- and the end of its last, and actors is the largest number that lived at the same time. An actor
-- that replaced a dead one is therefore not counted twice.
-- outside_seconds: time of the run before its first job and after its last.
with lives as (
    select
        stage,
        run,
        node,
        actor,
        count(*) as jobs,
        count(error) as failed,
        sum(busy_seconds) as busy_seconds,
        sum(load_seconds) as load_seconds,
        sum(seconds) as job_seconds,
        min(began) as first_began,
        max(ended) as last_ended
    from timeline
    where run is not null
    group by
        stage,
        run,
        node,
        actor
),

comings as (
    select stage, run, first_began as at_s, 1 as change from lives
    union all
    select stage, run, last_ended, -1 from lives
),

living as (
    select
        stage,
        run,
        sum(change) over (partition by stage, run order by at_s, change rows unbounded preceding) as actors
    from comings
),

most as (
    select
        stage,
        run,
        greatest(1, max(actors)) as actors
    from living
    group by
        stage,
        run
),

together as (
    select
        lives.stage,
        lives.run,
        null::varchar as node,
        null::varchar as actor,
        sum(lives.jobs) as jobs,
        sum(lives.failed) as failed,
        any_value(most.actors) as actors,
        sum(lives.busy_seconds) as busy_seconds,
        sum(lives.load_seconds) as load_seconds,
        sum(lives.job_seconds) as job_seconds,
        min(lives.first_began) as first_began,
        max(lives.last_ended) as last_ended
    from lives
    inner join most
        on most.stage = lives.stage
        and most.run = lives.run
    group by
        lives.stage,
        lives.run
),

each_and_together as (
    select * from together
    union all by name
    select *, 1 as actors from lives
),

final as (
    select
        found.stage,
        found.run,
        found.node,
        found.actor,
        found.jobs::bigint as jobs,
        found.failed::bigint as failed,
        found.actors::bigint as actors,
        found.last_ended - found.first_began as span_seconds,
        found.busy_seconds,
        1 - found.busy_seconds / nullif(found.actors * (found.last_ended - found.first_began), 0) as idle_share,
        found.load_seconds / nullif(found.load_seconds + found.job_seconds, 0) as loading_share,
        case
            when found.actor is null then runs.seconds - (found.last_ended - found.first_began)
        end as outside_seconds
    from each_and_together as found
    inner join runs
        on runs.stage = found.stage
        and runs.started = found.run
    order by
        found.run,
        found.stage,
        found.node nulls first,
        found.actor
)

select * from final

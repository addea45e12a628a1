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
    group by all
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
    group by all
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
        using (stage, run)
    group by all
),

each_and_together as (
    select * from together
    union all by name
    select *, 1 as actors from lives
),

final as (
    select
        totals.stage,
        totals.run,
        totals.node,
        totals.actor,
        totals.jobs::bigint as jobs,
        totals.failed::bigint as failed,
        totals.actors::bigint as actors,
        totals.last_ended - totals.first_began as span_seconds,
        totals.busy_seconds,
        1 - totals.busy_seconds / nullif(totals.actors * (totals.last_ended - totals.first_began), 0) as idle_share,
        totals.load_seconds / nullif(totals.load_seconds + totals.job_seconds, 0) as loading_share,
        case
            when totals.actor is null then runs.seconds - (totals.last_ended - totals.first_began)
        end as outside_seconds
    from each_and_together as totals
    inner join runs
        on runs.stage = totals.stage
        and runs.started = totals.run
    order by totals.run, totals.stage, totals.node nulls first, totals.actor
)

select * from final

-- Idle share of the actors
select
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
order by run, stage, actor is not null, node, actor

-- Skipped inputs and reasons
select
    stage,
    coalesce(model, 'every model') as model,
    dataset,
    coalesce(condition, 'every condition') as condition,
    reason,
    sum(n)::bigint as n
from skipped
group by all
order by stage, model, dataset, condition, reason

-- Jobs that failed
select
    stage,
    error,
    any_value(message) as example,
    count(*) as n
from failures
group by all
order by stage, error

-- Timeline of the run
select
    stage,
    lane,
    what,
    subject,
    began,
    seconds,
    share,
    jobs
from timeline_bars
order by all

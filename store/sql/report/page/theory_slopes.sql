-- Slopes
select *
from theory_slopes
order by experiment

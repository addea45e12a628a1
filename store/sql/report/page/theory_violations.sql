-- The theorems at random instances
select *
from theory_violations
order by kind, experiment, form

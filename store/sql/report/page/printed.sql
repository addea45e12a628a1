-- Published numbers next to ours
select * exclude (study, measure)
from published_vs_measured
where published is not null

-- Claims of the paper and measurements
select * exclude (study, measure)
from published_vs_measured
where study = $study

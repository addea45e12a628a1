-- Compressing attention on low-rank inputs
select
    experiment,
    heads,
    x,
    median(y) as y,
    min(y) as low,
    max(y) as high,
    count(*) as n
from theory
where starts_with(experiment, 'J.1')
group by all
order by experiment, heads, x

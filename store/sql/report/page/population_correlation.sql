-- Isotropy and error in the population of trainings
select
    measure,
    "grouping",
    error,
    estimate as rho,
    low,
    high,
    p,
    p_by,
    detectable,
    n_clusters as n_runs
from population_correlation
order by
    "grouping",
    error,
    measure

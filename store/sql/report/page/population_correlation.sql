-- Isotropy and error in the population of trainings
select
    study,
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
order by study, "grouping", error, measure

-- Isotropy and error in a population of trainings: tests by half of the data sets
select
    case answer when 'population_correlation' then 'explored' else 'confirmed' end as half,
    measure,
    "grouping",
    case statistic when 'spearman_wql' then 'wql' else 'nmse' end as error,
    estimate as rho,
    low,
    high,
    detectable, -- the smallest effect that the test finds with a probability of 80 %
    p,
    p_by,
    n_clusters as n_runs,
    reason
from inference
where study = $study
    and (
        (answer = 'population_correlation' and measure = 'zeta_adjusted_corrected')
        or answer = 'hypothesis_tests' -- hypotheses may be about other measures
    )
order by half desc, measure, "grouping", error

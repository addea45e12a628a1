-- Hypotheses on the data sets that were kept for confirming them
select
    name,
    claim,
    verdict,
    measure,
    "grouping",
    error,
    explored_estimate as explored_rho,
    estimate as rho,
    low,
    high,
    p_by,
    detectable
from hypothesis_tests
order by
    name

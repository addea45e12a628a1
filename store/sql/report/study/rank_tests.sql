-- Tests on ranks
select
    measure,
    "grouping",
    block,
    statistic,
    n,
    estimate,
    low,
    high,
    p,
    p_bh,
    reason
from rank_tests
where study = $study
order by "grouping", measure, block

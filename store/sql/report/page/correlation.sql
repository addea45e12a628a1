-- Is isotropy correlated with lower error?
select
    measure,
    "grouping",
    n,
    n_blocks,
    spearman,
    low,
    high,
    p,
    p_bh,
    double_centred_p,
    detectable,
    reason,
    evidence
from correlation
where study = $study

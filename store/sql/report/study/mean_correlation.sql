-- Mean correlation of isotropy with error over data sets
select
    n,
    n_blocks,
    spearman,
    low,
    high,
    p,
    p_smallest,
    reason
from correlation
where study = $study
    and measure = 'zeta_adjusted_corrected'
    and "grouping" = 'per_dataset' -- the claim of Shelim et al. 2025 in published_vs_measured

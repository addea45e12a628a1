-- How fast do the singular values of each matrix decay: as a power of j or exponentially (Yu et al. 2026, Theorem 1)?
-- power and rate: slopes of ln(sigma_j / sigma_1) against ln j and against j. Only singular values
-- above the floor of rounding errors are used.
-- stable_rank: sum of the squared singular values divided by the largest square.
select * from decays

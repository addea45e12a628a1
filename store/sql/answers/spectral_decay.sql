-- How fast do the singular values of each matrix decay: as a power of j, or exponentially (rank_structure.md Theorem 1)?
-- Slopes of ln(sigma_j / sigma_1) against ln j and against j, over those above the floor that rounding leaves.
-- stable_rank: sum of squares over the largest square.
select * from decays

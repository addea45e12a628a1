-- How many singular values of each matrix are above epsilon of the largest (rank_structure.md eq. 1)?
-- share: of the most that its shape allows. meaningless: epsilon is below what rounding leaves meaning.
with tolerances (epsilon) as (
    values (1e-1::double), (3e-2), (1e-2), (3e-3), (1e-3), (1e-4)
),

matrices as (
    select
        * exclude (singular_values, singular_values_centred),
        least(n_rows, n_columns) as full_rank,
        singular_values as sigma
    from spectra
),

final as (
    select
        matrices.* exclude (sigma),
        tolerances.epsilon,
        tolerances.epsilon < matrices.floor as meaningless,
        len(list_filter(matrices.sigma, lambda s: s > tolerances.epsilon * matrices.sigma[1])) as numerical_rank,
        len(list_filter(matrices.sigma, lambda s: s > tolerances.epsilon * matrices.sigma[1]))
        / nullif(matrices.full_rank, 0) as share
    from matrices
    cross join tolerances
)

select * from final

-- How many singular values of each matrix are above epsilon of the largest (Yu et al. 2026, eq. 1)?
-- share: numerical rank divided by the largest rank that the matrix' shape allows.
-- below_noise_floor: whether epsilon lies below the floor of rounding errors.
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

counted as (
    -- Singular values descend, which a check verifies. A binary search with 16 steps therefore counts
    -- the values above the tolerance in spectra of up to 65,535 values.
    select
        matrices.* exclude (sigma),
        tolerances.epsilon,
        case
            when matrices.sigma is not null then list_reduce(
                [0, 32768, 16384, 8192, 4096, 2048, 1024, 512, 256, 128, 64, 32, 16, 8, 4, 2, 1],
                lambda n, step:
                    case when matrices.sigma[n + step] > tolerances.epsilon * matrices.sigma[1] then n + step else n end
            )::bigint
        end as numerical_rank
    from matrices
    cross join tolerances
),

final as (
    select
        * exclude (numerical_rank),
        epsilon < floor as below_noise_floor,
        numerical_rank,
        numerical_rank / nullif(full_rank, 0) as share
    from counted
)

select * from final

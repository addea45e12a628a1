-- How fast do the singular values of each matrix decay: as a power of j or exponentially (Yu et al. 2026, Theorem 1)?
-- power and rate: slopes of ln(sigma_j / sigma_1) against ln j and against j. Only singular values
-- above the floor of rounding errors are used.
-- stable_rank: sum of the squared singular values divided by the largest square.
with numbers as (
    -- The numbers 1, 2, ... and their logarithms, up to the length of the longest spectrum.
    select
        list_transform(range(1, max(len(singular_values)) + 1), lambda j: j::double) as j,
        list_transform(range(1, max(len(singular_values)) + 1), lambda j: ln(j)) as ln_j
    from spectra
),

counted as (
    -- Singular values descend, which a check verifies. A binary search with 16 steps therefore counts
    -- the values above the floor in spectra of up to 65,535 values.
    select
        *,
        singular_values[1] as largest,
        list_reduce(
            [0, 32768, 16384, 8192, 4096, 2048, 1024, 512, 256, 128, 64, 32, 16, 8, 4, 2, 1],
            lambda n, step:
                case when singular_values[n + step] / nullif(singular_values[1], 0) > floor then n + step else n end
        )::bigint as n
    from spectra
    where len(singular_values) > 0
),

logarithms as (
    select
        counted.*,
        list_transform(counted.singular_values[:n], lambda s: ln(s / largest)) as y
    from counted
),

sums as (
    -- n times the sums of squares and products of deviations from the means.
    select
        logarithms.* exclude (y),
        n * (n + 1) / 2 as sum_rate,
        list_sum(numbers.ln_j[:n]) as sum_power,
        list_sum(y) as sum_y,
        n * list_dot_product(numbers.ln_j[:n], numbers.ln_j[:n]) - sum_power ** 2 as xx_power,
        n * (n * (n + 1) * (2 * n + 1) / 6) - sum_rate ** 2 as xx_rate,
        n * list_dot_product(numbers.ln_j[:n], y) - sum_power * sum_y as xy_power,
        n * list_dot_product(numbers.j[:n], y) - sum_rate * sum_y as xy_rate,
        n * list_dot_product(y, y) - sum_y ** 2 as yy
    from logarithms
    cross join numbers
),

final as (
    select
        study,
        model,
        dataset,
        condition,
        what,
        matrix,
        attention,
        stack,
        layer,
        normed,
        head,
        tokens,
        step,
        len(singular_values) as full_rank,
        n as n_above_floor,
        case when n > 1 then xy_power / xx_power end as power,
        case when n > 1 then case when yy > 0 then xy_power ** 2 / (xx_power * yy) else 1 end end as power_r2,
        case when n > 1 then xy_rate / xx_rate end as rate,
        case when n > 1 then case when yy > 0 then xy_rate ** 2 / (xx_rate * yy) else 1 end end as rate_r2,
        list_dot_product(singular_values, singular_values) / nullif(singular_values[1], 0) ** 2 as stable_rank
    from sums
)

select * from final

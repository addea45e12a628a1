-- How fast do the singular values of each matrix decay: as a power of j, or exponentially (rank_structure.md Theorem 1)?
-- Slopes of ln(sigma_j / sigma_1) against ln j and against j, over those above the floor that rounding leaves.
-- stable_rank: sum of squares over the largest square.
with numbers as (  -- 1, 2, ... and their logarithms, as many as the longest spectrum has
    select
        list_transform(range(1, max(len(singular_values)) + 1), lambda j: j::double) as j,
        list_transform(range(1, max(len(singular_values)) + 1), lambda j: ln(j)) as ln_j
    from spectra
),

ratios as (
    select
        *,
        list_transform(singular_values, lambda s: s / nullif(singular_values[1], 0)) as ratios
    from spectra
    where len(singular_values) > 0
),

logarithms as (  -- values descend (a check), so that those above the floor are the first ones
    select
        ratios.*,
        list_transform(list_filter(ratios.ratios, lambda r: r > ratios.floor), lambda r: ln(r)) as y,
        len(y) as n
    from ratios
),

sums as (  -- n times the (co)variances times n: those of j itself are known
    select
        logarithms.* exclude (ratios, y),
        list_sum(list_transform(ratios, lambda r: r * r)) as stable_rank,
        list_sum(numbers.ln_j[:n]) as sum_power,
        n * (n + 1) / 2 as sum_rate,
        n * list_dot_product(numbers.ln_j[:n], numbers.ln_j[:n]) - sum_power ** 2 as xx_power,
        n * (n * (n + 1) * (2 * n + 1) / 6) - sum_rate ** 2 as xx_rate,
        n * list_dot_product(numbers.ln_j[:n], y) - sum_power * list_sum(y) as xy_power,
        n * list_dot_product(numbers.j[:n], y) - sum_rate * list_sum(y) as xy_rate,
        n * list_dot_product(y, y) - list_sum(y) ** 2 as yy
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
        case when n > 1 then if(yy > 0, xy_power ** 2 / (xx_power * yy), 1) end as power_r2,
        case when n > 1 then xy_rate / xx_rate end as rate,
        case when n > 1 then if(yy > 0, xy_rate ** 2 / (xx_rate * yy), 1) end as rate_r2,
        stable_rank
    from sums
)

select * from final

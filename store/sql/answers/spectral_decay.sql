-- How fast do the singular values of each matrix decay: as a power of j, or exponentially (rank_structure.md Theorem 1)?
-- Slopes of ln(sigma_j / sigma_1) against ln j and against j, over those above the floor that rounding leaves.
-- stable_rank: sum of squares over the largest square.
with ratios as (
    select
        rowid as spectrum,
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
        generate_subscripts(singular_values, 1) as j,
        unnest(singular_values) / nullif(singular_values[1], 0) as ratio,
        floor
    from spectra
),

final as (
    select
        spectrum,
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
        count(*) as full_rank,
        count(*) filter (where ratio > floor) as n_above_floor,
        regr_slope(ln(ratio), ln(j)) filter (where ratio > floor) as power,
        regr_r2(ln(ratio), ln(j)) filter (where ratio > floor) as power_r2,
        regr_slope(ln(ratio), j) filter (where ratio > floor) as rate,
        regr_r2(ln(ratio), j) filter (where ratio > floor) as rate_r2,
        sum(ratio * ratio) as stable_rank
    from ratios
    group by all
)

select * exclude (spectrum) from final

-- How many dimensions hold 50, 80, 90, 95 and 99 % of the variance at each layer, and what share do the first 3 hold?
-- dimensions: list in the order of these shares (Shelim et al. 2025, section 4.1), null if there is
-- no variance. A share counts as reached at a relative tolerance of 1e-12. There is one row for
-- every row of geometry, without the eigenvalues, which make up most of that table.
with bounds as (
    select
        *,
        list_transform(eigenvalues, lambda v: greatest(v, 0)) as variances,
        list_sum(variances) as total,
        total * (1 - 1e-12) as bound
    from geometry
),

counted as (
    select
        *,
        case
            when total > 0 then list_reduce(
                variances,
                lambda a, v: {
                    'sum': a.sum + v,
                    'n50': a.n50 + (a.sum + v < 0.5 * bound)::integer,
                    'n80': a.n80 + (a.sum + v < 0.8 * bound)::integer,
                    'n90': a.n90 + (a.sum + v < 0.9 * bound)::integer,
                    'n95': a.n95 + (a.sum + v < 0.95 * bound)::integer,
                    'n99': a.n99 + (a.sum + v < 0.99 * bound)::integer
                },
                {'sum': 0::double, 'n50': 1, 'n80': 1, 'n90': 1, 'n95': 1, 'n99': 1}
            )
        end as held
    from bounds
),

final as (
    select
        study,
        model,
        base_model,
        size_parameter,
        size_rule,
        dataset,
        condition,
        context,
        noise,
        stack,
        layer,
        normed,
        n_tokens,
        len(eigenvalues) as width,
        list_sum(eigenvalues[:3]) / nullif(list_sum(eigenvalues), 0) as share_of_3,
        case when held is not null then [held.n50, held.n80, held.n90, held.n95, held.n99] end as dimensions
    from counted
)

select * from final

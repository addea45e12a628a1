-- How many dimensions hold a share epsilon of the variance at each layer (isotropy.md 4.1; reached to 1e-12)?
with shares (epsilon) as (
    values (0.5::double), (0.8), (0.9), (0.95), (0.99)
),

spectra as (
    select
        rowid as spectrum,
        study,
        model,
        base_model,
        rank,
        dataset,
        condition,
        context,
        noise,
        stack,
        layer,
        normed,
        n_tokens,
        eigenvalues
    from geometry
),

variances as (
    select
        spectrum,
        generate_subscripts(eigenvalues, 1) as m,
        greatest(unnest(eigenvalues), 0) as variance
    from spectra
),

sums as (
    select
        spectrum,
        sum(variance) over (partition by spectrum order by m rows unbounded preceding) as reached,
        sum(variance) over (partition by spectrum) as total
    from variances
),

dimensions as (
    select
        sums.spectrum,
        shares.epsilon,
        count(*) filter (where sums.reached < shares.epsilon * sums.total * (1 - 1e-12)) + 1 as effective_dimension
    from sums
    cross join shares
    where sums.total > 0
    group by
        sums.spectrum,
        shares.epsilon
),

final as (
    select
        spectra.* exclude (spectrum, eigenvalues),
        len(spectra.eigenvalues) as width,
        shares.epsilon,
        dimensions.effective_dimension
    from spectra
    cross join shares
    left join dimensions
        on dimensions.spectrum = spectra.spectrum
        and dimensions.epsilon = shares.epsilon
)

select * from final

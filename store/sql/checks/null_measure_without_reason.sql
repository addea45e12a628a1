-- A geometry row that lacks a measure says why.
with final as (
    select
        study,
        model,
        dataset,
        condition,
        stack,
        layer,
        zeta,
        zeta_adjusted,
        log_isotropy_scaled
    from geometry
    where reason is null
        and (
            zeta is null
            or isnan(zeta)
            or zeta_adjusted is null
            or isnan(zeta_adjusted)
            or log_isotropy_scaled is null
            or isnan(log_isotropy_scaled)
            or eigenvalues is null
        )
)

select * from final

-- What is each isotropy measure of the last layer, as defined and with the sign that makes larger more isotropic?
with measures as (
    select
        study,
        family,
        model,
        base_model,
        rank,
        dataset,
        condition,
        context,
        noise,
        unnest([
            {'measure': 'zeta', 'value': zeta, 'isotropy': -abs(zeta)},
            {'measure': 'zeta_adjusted', 'value': zeta_adjusted, 'isotropy': -abs(zeta_adjusted)},
            {
                'measure': 'zeta_adjusted_corrected',
                'value': zeta_adjusted_corrected,
                'isotropy': -abs(zeta_adjusted_corrected)
            },
            {'measure': 'log_isotropy_scaled', 'value': log_isotropy_scaled, 'isotropy': log_isotropy_scaled},
            {'measure': 'isoscore', 'value': isoscore, 'isotropy': isoscore}
        ], recursive := true)
    from last_layer
),

final as (
    select
        * replace (
            case when isfinite(value) then value end as value,
            case when isfinite(isotropy) then isotropy end as isotropy
        )
    from measures
)

select * from final

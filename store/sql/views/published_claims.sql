-- What does the isotropy paper claim in words, and which statistic of `inference` would show it, on which side of what?
-- side -1: the claim holds where the statistic lies below centre; +1: above. Correlations are with log NMSE.
with claims (figure, source, claim, answer, measure, "grouping", statistic, centre, side) as (
    values
        (
            'isotropy section 5', 'section 6', 'Isotropy is a reliable indicator: more isotropic models err less',
            'correlation', 'zeta_adjusted', 'per_dataset', 'spearman', 0.0, -1
        ),
        (
            'isotropy Fig. 3', 'section 5.1', 'Within a synthetic data set, more isotropic models err less',
            'correlation', 'zeta_adjusted', 'per_dataset', 'spearman', 0.0, -1
        ),
        (
            'isotropy Fig. 3', 'section 5.1', 'Of two synthetic data sets of a domain, the more isotropic one has less error',
            'sign_test', 'zeta_adjusted', 'dataset', 'agreement', 0.5, 1
        ),
        (
            'isotropy Fig. 5', 'section 5.1', 'Of two context lengths, the more isotropic one has less error',
            'context_effect', 'zeta_adjusted', 'context', 'agreement', 0.5, 1
        ),
        (
            'isotropy Fig. 6', 'section 5.1', 'Isotropy is lower on all noisy data sets',
            'noise_effect', 'zeta_adjusted', 'noise', 'more_isotropic', 0.5, -1
        ),
        (
            'isotropy Fig. 6', 'section 5.1', 'Noise raises the error',
            'noise_effect', 'log_nmse', 'noise', 'more_error', 0.5, 1
        ),
        (
            'isotropy Fig. 6', 'section 5.1', 'Where noise lowers isotropy, it raises the error',
            'noise_effect', 'zeta_adjusted', 'noise', 'agreement', 0.5, 1
        ),
        (
            'isotropy Fig. 7', 'section 5.2', 'Within a real data set, more isotropic models err less',
            'correlation', 'zeta_adjusted', 'per_dataset', 'spearman', 0.0, -1
        ),
        (
            'isotropy Fig. 7', 'section 5.2', 'Of two real data sets of a domain, the more isotropic one has less error',
            'sign_test', 'zeta_adjusted', 'dataset', 'agreement', 0.5, 1
        ),
        (
            'isotropy Fig. 8', 'section 5.2', 'Of two context lengths, the more isotropic one has less error',
            'context_effect', 'zeta_adjusted', 'context', 'agreement', 0.5, 1
        )
),

final as (
    select * replace (centre::double as centre)
    from claims
)

select * from final

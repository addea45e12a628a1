-- What do the two papers claim in words, and which statistic of `inference` would show it, on which side of what?
-- side: the claim holds if the statistic lies below (-1) or above (+1) centre.
-- Isotropy is measured by ζ′ less its null mean, not by the printed |ζ′|, which is 0 if floor and
-- anisotropy cancel (science.md 2). Correlations are with log NMSE. Ranks are shares of the largest
-- rank that a matrix allows, at the tolerance after the @.
with claims (figure, source, claim, answer, measure, "grouping", statistic, centre, side) as (
    values
        (
            'isotropy section 5', 'section 6', 'Isotropy is a reliable indicator: more isotropic models err less',
            'correlation', 'zeta_adjusted_corrected', 'per_dataset', 'spearman', 0.0, -1
        ),
        (
            'isotropy Fig. 3', 'section 5.1', 'Within a synthetic data set, more isotropic models err less',
            'correlation', 'zeta_adjusted_corrected', 'per_dataset', 'spearman', 0.0, -1
        ),
        (
            'isotropy Fig. 3', 'section 5.1', 'Of two synthetic data sets of a domain, the more isotropic one has less error',
            'sign_test', 'zeta_adjusted_corrected', 'dataset', 'agreement', 0.5, 1
        ),
        (
            'isotropy Fig. 5', 'section 5.1', 'Of two context lengths, the more isotropic one has less error',
            'context_effect', 'zeta_adjusted_corrected', 'context', 'agreement', 0.5, 1
        ),
        (
            'isotropy Fig. 6', 'section 5.1', 'Isotropy is lower on all noisy data sets',
            'noise_effect', 'zeta_adjusted_corrected', 'noise', 'more_isotropic', 0.5, -1
        ),
        (
            'isotropy Fig. 6', 'section 5.1', 'Noise raises the error',
            'noise_effect', 'log_nmse', 'noise', 'more_error', 0.5, 1
        ),
        (
            'isotropy Fig. 6', 'section 5.1', 'Where noise lowers isotropy, it raises the error',
            'noise_effect', 'zeta_adjusted_corrected', 'noise', 'agreement', 0.5, 1
        ),
        (
            'isotropy Fig. 7', 'section 5.2', 'Within a real data set, more isotropic models err less',
            'correlation', 'zeta_adjusted_corrected', 'per_dataset', 'spearman', 0.0, -1
        ),
        (
            'isotropy Fig. 7', 'section 5.2', 'Of two real data sets of a domain, the more isotropic one has less error',
            'sign_test', 'zeta_adjusted_corrected', 'dataset', 'agreement', 0.5, 1
        ),
        (
            'isotropy Fig. 8', 'section 5.2', 'Of two context lengths, the more isotropic one has less error',
            'context_effect', 'zeta_adjusted_corrected', 'context', 'agreement', 0.5, 1
        ),
        (
            'ranks Fig. 2', 'section 2', 'Embeddings of time series have fewer singular values above 0.01 than those of other data',
            'rank_tests', 'embedding@0.01', 'modality', 'difference', 0.0, -1
        ),
        (
            'ranks Fig. 3a', 'section 2', 'The rank of the embedding grows with the patch size',
            'rank_tests', 'embedding rank@0.01', 'x_axis', 'trend', 0.0, 1
        ),
        (
            'ranks Fig. 4', 'section 3', 'The wider a Chronos model, the smaller the share of the width that its queries use',
            'rank_tests', 'query@0.01', 'x_axis', 'trend', 0.0, -1
        ),
        (
            'ranks Fig. 4c', 'section 3', 'The rank of the queries grows with that of the vocabulary',
            'rank_tests', 'query@0.01', 'x_axis', 'trend', 0.0, 1
        ),
        (
            'ranks Fig. 5', 'section 4', 'Attention matrices have higher ranks in deeper layers',
            'rank_tests', 'attention slope@0.01', 'model', 'mean', 0.0, 1
        ),
        (
            'ranks Fig. 5c', 'section 4', 'Even of a constant series, the rank of a layer''s input grows with depth',
            'rank_tests', 'constant slope@0.01', 'model', 'trend', 0.0, 1
        ),
        (
            'ranks Fig. 6', 'section 4', 'Attention matrices have higher ranks in deeper layers',
            'rank_tests', 'attention slope@0.01', 'model', 'mean', 0.0, 1
        ),
        (
            'ranks section 4', 'section 4', 'The rank of what a layer is given grows with depth',
            'rank_tests', 'input slope@0.01', 'model', 'mean', 0.0, 1
        ),
        (
            'ranks Fig. 9', 'Appendix E', 'The rank of the queries grows with the number of heads',
            'rank_tests', 'query@0.1', 'x_axis', 'trend', 0.0, 1
        ),
        (
            'ranks Fig. 10', 'Appendix G.1', 'Attention matrices of time-series models have lower ranks than those of text models',
            'rank_tests', 'attention@0.01', 'modality', 'difference', 0.0, -1
        ),
        (
            'ranks Fig. 10', 'Appendix G.1', 'Attention matrices have higher ranks in deeper layers',
            'rank_tests', 'attention slope@0.01', 'model', 'mean', 0.0, 1
        ),
        (
            'ranks Fig. 10', 'Appendix G.1', 'Attention matrices have lower ranks than MLP matrices',
            'rank_tests', 'mlp less attention@0.01', 'matrix', 'mean', 0.0, 1
        ),
        (
            'ranks Fig. 13', 'Appendix H', 'The embedding of noise has a higher rank than that of a sinusoid',
            'rank_tests', 'noise less sinusoid@0.01', 'signal', 'mean', 0.0, 1
        ),
        (
            'ranks Table 2', 'section 5', 'Cut to about a quarter of its size by SVD, attention loses no accuracy',
            'compression_loss', 'log WQL over 1.05@0.25', 'svd', 'mean', 0.0, -1
        ),
        (
            'ranks Table 2', 'Table 2', 'The less of the attention is left, the fewer next tokens the cut model shares',
            'compression_loss', 'overlap', 'svd', 'trend', 0.0, 1
        ),
        (
            'ranks section 5', 'section 5', 'At equal size, heads that widen with depth err less than heads of one width',
            'flow_against_flat', 'log WQL', 'chronos-t5', 'mean', 0.0, -1
        ),
        (
            'ranks Table 3', 'Table 3', 'At equal size, heads that widen with depth err less than heads of one width',
            'flow_against_flat', 'log WQL', 'moirai', 'mean', 0.0, -1
        )
),

final as (
    select
        * replace (centre::double as centre),
        -- A pattern for LIKE.
        case when answer = 'flow_against_flat' then 'flow less flat%' else '%' end as blocks
    from claims
)

select * from final

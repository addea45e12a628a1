-- Cosines lie in [-1, 1].
with cosines as (
    select
        study,
        model,
        dataset,
        condition,
        stack,
        layer,
        normed,
        unnest([
            zeta,
            zeta_token,
            zeta_adjusted,
            zeta_adjusted_weighted,
            zeta_adjusted_floor,
            zeta_adjusted_null,
            cai_cosine,
            cai_cluster_cosine
        ]) as cosine
    from geometry
),

final as (
    select *
    from cosines
    where abs(cosine) > 1 + 1e-9
)

select * from final

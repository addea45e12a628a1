-- How many dimensions hold a given share of the variance at each layer (Shelim et al. 2025, section 4.1)?
with shares (variance_share, place) as (
    values (0.5::double, 1), (0.8, 2), (0.9, 3), (0.95, 4), (0.99, 5)
),

final as (
    select
        layers.* exclude (share_of_3, dimensions),
        shares.variance_share,
        layers.dimensions[shares.place]::bigint as effective_dimension
    from layer_variances as layers
    cross join shares
)

select * from final

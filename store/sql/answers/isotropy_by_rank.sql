-- How isotropic is each layer of a model and of its compressed models, and how many dimensions hold its variance?
-- Values are means over the study's data sets and conditions. The base has a row next to its
-- compressed models, with a rank_ratio of 1.
with layers as (
    select
        study,
        model,
        stack,
        layer,
        normed,
        any_value(size_parameter) as size_parameter,
        any_value(size_rule) as size_rule,
        count(*) as n_cells,
        avg(zeta) as zeta,
        avg(zeta_adjusted) as zeta_adjusted,
        avg(zeta_adjusted_corrected) as zeta_adjusted_corrected,
        avg(isoscore) as isoscore,
        avg(log_isotropy_scaled) as log_isotropy_scaled
    from geometry
    group by all
),

dimensions as (
    select
        study,
        model,
        stack,
        layer,
        normed,
        avg(effective_dimension) as effective_dimension,
        any_value(width) as width
    from effective_dimension
    where variance_share = 0.8
    group by all
),

compressed as (
    select distinct layers.study, compression.base_model
    from layers
    inner join compression
        on compression.model = layers.model
),

final as (
    select
        layers.study,
        compressed.base_model,
        layers.model,
        coalesce(compression.method, 'none') as method,
        layers.size_parameter,
        layers.size_rule,
        coalesce(compression.rank_ratio, 1) as rank_ratio,
        coalesce(compression.attention_ratio, 1) as attention_ratio,
        layers.stack,
        layers.layer,
        layers.normed,
        layers.n_cells,
        layers.zeta,
        layers.zeta_adjusted,
        layers.zeta_adjusted_corrected,
        layers.isoscore,
        layers.log_isotropy_scaled,
        dimensions.effective_dimension,
        dimensions.width
    from layers
    left join compression
        on compression.model = layers.model
    inner join compressed
        on compressed.study = layers.study
        and compressed.base_model = coalesce(compression.base_model, layers.model)
    left join dimensions
        on dimensions.study = layers.study
        and dimensions.model = layers.model
        and dimensions.stack = layers.stack
        and dimensions.layer = layers.layer
        and dimensions.normed = layers.normed
)

select * from final
order by study, base_model, stack, layer, normed, method, rank_ratio

-- How isotropic is each layer of a model and of those compressed from it, and how many dimensions hold its variance?
-- Means over the study's data sets and conditions; the base stands beside its compressed models with a rank_ratio of 1.
with compressed as (
    select distinct
        geometry.study,
        compression.base_model
    from geometry
    inner join compression
        on compression.model = geometry.model
),

placed as (
    select
        geometry.*,
        coalesce(compression.base_model, geometry.model) as made_from,
        coalesce(compression.method, 'none') as method,
        coalesce(compression.rank_ratio, 1) as rank_ratio,
        coalesce(compression.attention_ratio, 1) as attention_ratio
    from geometry
    left join compression
        on compression.model = geometry.model
    inner join compressed
        on compressed.study = geometry.study
        and compressed.base_model = coalesce(compression.base_model, geometry.model)
),

final as (
    select
        placed.study,
        placed.made_from as base_model,
        placed.model,
        placed.method,
        any_value(placed.rank) as rank,
        any_value(placed.rank_ratio) as rank_ratio,
        any_value(placed.attention_ratio) as attention_ratio,
        placed.stack,
        placed.layer,
        placed.normed,
        count(*) as n_cells,
        avg(placed.zeta) as zeta,
        avg(placed.zeta_adjusted) as zeta_adjusted,
        avg(placed.isoscore) as isoscore,
        avg(placed.log_isotropy_scaled) as log_isotropy_scaled,
        avg(dimensions.effective_dimension) as effective_dimension,
        any_value(dimensions.width) as width
    from placed
    left join effective_dimension as dimensions
        on dimensions.study = placed.study
        and dimensions.model = placed.model
        and dimensions.dataset = placed.dataset
        and dimensions.condition = placed.condition
        and dimensions.stack = placed.stack
        and dimensions.layer = placed.layer
        and dimensions.normed = placed.normed
        and dimensions.epsilon = 0.8
    group by
        placed.study,
        placed.made_from,
        placed.model,
        placed.method,
        placed.stack,
        placed.layer,
        placed.normed
)

select * from final
order by
    study,
    base_model,
    stack,
    layer,
    normed,
    method,
    rank_ratio

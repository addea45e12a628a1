-- How isotropic is the layer that stands for each model in the isotropy studies (science.md, section 1)?
-- The decoder of models that forecast from a vocabulary, else the encoder (or the one stack there is); the last block's
-- state after the final norm, where the family has one.
with placed as (
    select
        geometry.study,
        checkpoints.family,
        geometry.* exclude (study),
        case
            when checkpoints.family in ('chronos-t5', 'wavetoken') then 'decoder'
            else max(geometry.stack) over (partition by geometry.study, geometry.model)
        end as standing
    from geometry
    inner join checkpoints
        on checkpoints.model = coalesce(geometry.base_model, geometry.model)
),

final as (
    select * exclude (standing)
    from placed
    where stack = standing
    qualify (layer, normed) = max((layer, normed)) over (partition by study, model, dataset, condition)
)

select * from final

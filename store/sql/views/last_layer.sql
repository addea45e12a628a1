-- How isotropic is the layer that stands for each family in the isotropy studies (science.md, section 1)?
-- PatchTST has no final norm, so that its last block's state stands for it.
with stands_for (family, stack, normed) as (
    values
        ('chronos-t5', 'decoder', true),
        ('chronos-bolt', 'encoder', true),
        ('moirai', 'encoder', true),
        ('lag-llama', 'decoder', true),
        ('patchtst', 'encoder', false)
),

final as (
    select
        geometry.study,
        checkpoints.family,
        geometry.* exclude (study)
    from geometry
    inner join checkpoints
        on checkpoints.model = coalesce(geometry.base_model, geometry.model)
    inner join stands_for
        on stands_for.family = checkpoints.family
        and stands_for.stack = geometry.stack
        and stands_for.normed = geometry.normed
    qualify geometry.layer = max(geometry.layer) over (partition by geometry.model, geometry.stack)
)

select * from final

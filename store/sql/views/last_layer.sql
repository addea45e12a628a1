-- How isotropic is the layer that stands for each family in the isotropy studies (science.md, section 1)?
with stands_for (family, stack) as (
    values
        ('chronos-t5', 'decoder'),
        ('chronos-bolt', 'encoder'),
        ('moirai', 'encoder'),
        ('lag-llama', 'decoder'),
        ('patchtst', 'encoder')
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
    where geometry.normed
)

select * from final

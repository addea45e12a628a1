-- How isotropic is the layer that represents each model in the isotropy studies (docs/science.md, Isotropy)?
-- The stack is the output stack of the model's family. The state is the last block's, after the final norm if the family has one.
with models as (
    select
        study,
        model,
        any_value(base_model) as base_model
    from geometry
    group by all
),

standing as (
    select
        models.study,
        models.model,
        checkpoints.family,
        checkpoints.output_stack as stack
    from models
    inner join checkpoints
        on checkpoints.model = coalesce(models.base_model, models.model)
),

last as (
    -- Only rowids are selected, so that no list columns are sorted or grouped.
    select
        any_value(standing.family) as family,
        arg_max(geometry.rowid, 2 * geometry.layer + geometry.normed::integer) as place
    from geometry
    inner join standing
        using (study, model, stack)
    group by
        geometry.study,
        geometry.model,
        geometry.dataset,
        geometry.condition
),

final as (
    select
        geometry.study,
        last.family,
        geometry.* exclude (study)
    from geometry
    inner join last
        on last.place = geometry.rowid
    order by geometry.rowid
)

select * from final

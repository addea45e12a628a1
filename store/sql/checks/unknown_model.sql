-- Every measured model is listed in checkpoints (or is a baseline), or no answer could place it in a family.
with measured as (
    select
        coalesce(base_model, model) as model
    from geometry
    union
    select
        coalesce(base_model, model) as model
    from forecasts
    union
    select
        coalesce(base_model, model) as model
    from validation
    union
    select
        coalesce(base_model, model) as model
    from alignment
    union
    select
        coalesce(base_model, model) as model
    from partition
    union
    select
        coalesce(base_model, model) as model
    from jacobian
),

final as (
    select measured.model
    from measured
    anti join checkpoints
        on checkpoints.model = measured.model
    anti join baselines
        on baselines.model = measured.model
)

select * from final

-- Every compressed model, and the base that it was made from, is among the checkpoints.
with named as (
    select
        model,
        base_model as name
    from compression
    union all
    select
        model,
        model as name
    from compression
),

final as (
    select named.*
    from named
    anti join checkpoints
        on checkpoints.model = named.name
)

select * from final

-- Which models are earlier states of a model, namely snapshots of its training?
with final as (
    select model
    from checkpoints
    where ref like '%/snapshots/step-%'
)

select * from final

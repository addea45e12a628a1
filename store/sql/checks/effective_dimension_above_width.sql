-- No effective dimension is above the width of the states.
with final as (
    select
        effective_dimension.study,
        effective_dimension.model,
        effective_dimension.dataset,
        effective_dimension.condition,
        effective_dimension.stack,
        effective_dimension.layer,
        effective_dimension.variance_share,
        effective_dimension.effective_dimension,
        dumps.width
    from effective_dimension
    inner join dumps
        on dumps.kind = 'embeddings'
        and dumps.model = effective_dimension.model
        and dumps.dataset = effective_dimension.dataset
        and dumps.condition = effective_dimension.condition
    where effective_dimension.effective_dimension > dumps.width
)

select * from final

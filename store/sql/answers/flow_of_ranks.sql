-- How does the numerical rank of what a layer is given grow with depth (rank_structure.md section 4)?
-- depth: 0 is the embedding, 1 the last block's output; states after the final norm are left out.
with inputs as (
    select
        *,
        layer / max(layer) over (partition by study, model, dataset, condition, stack) as depth
    from matrix_ranks
    where what = 'input'
        and not normed
),

final as (
    select
        inputs.study,
        inputs.model,
        checkpoints.family,
        checkpoints.modality,
        inputs.base_model,
        inputs.rank,
        inputs.dataset,
        inputs.condition,
        inputs.stack,
        inputs.layer,
        inputs.depth,
        inputs.tokens,
        inputs.n_rows,
        inputs.n_columns as width,
        inputs.epsilon,
        inputs.meaningless,
        inputs.numerical_rank,
        inputs.share
    from inputs
    left join checkpoints
        on checkpoints.model = inputs.model
)

select * from final

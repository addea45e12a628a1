-- How does the numerical rank of the layer input grow with depth (Yu et al. 2026, section 4)?
-- depth: 0 is the embedding, 1 the last block's output; states after the final norm are left out.
with stacks as (
    select
        study,
        model,
        dataset,
        condition,
        stack,
        max(layer) as deepest
    from spectra
    where what = 'input'
        and not normed
    group by all
),

inputs as (
    select
        ranks.*,
        ranks.layer / stacks.deepest as depth
    from matrix_ranks as ranks
    inner join stacks
        on stacks.study = ranks.study
        and stacks.model = ranks.model
        and stacks.dataset is not distinct from ranks.dataset
        and stacks.condition is not distinct from ranks.condition
        and stacks.stack = ranks.stack
    where ranks.what = 'input'
        and not ranks.normed
),

final as (
    select
        inputs.study,
        inputs.model,
        checkpoints.family,
        checkpoints.modality,
        inputs.base_model,
        inputs.size_parameter,
        inputs.size_rule,
        inputs.dataset,
        inputs.condition,
        inputs.stack,
        inputs.layer,
        inputs.depth,
        inputs.tokens,
        inputs.n_rows,
        inputs.n_columns as width,
        inputs.epsilon,
        inputs.below_noise_floor,
        inputs.numerical_rank,
        inputs.share
    from inputs
    left join checkpoints
        on checkpoints.model = inputs.model
)

select * from final

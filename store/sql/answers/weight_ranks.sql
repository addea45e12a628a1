-- What is the numerical rank of each attention and MLP matrix, and how does it grow with depth?
-- depth: 0 is the first block, 1 the last. Matrices without effect at their position (column
-- reason) are left out.
with models as (
    select
        study,
        model,
        stack,
        max(layer) as deepest
    from spectra
    where what = 'weight'
        and head is null
        and reason is null
    group by all
),

weights as (
    select
        ranks.*,
        (ranks.layer - 1) / nullif(models.deepest - 1, 0) as depth
    from matrix_ranks as ranks
    inner join models
        using (study, model, stack)
    where ranks.what = 'weight'
        and ranks.head is null
        and ranks.reason is null
),

final as (
    select
        weights.study,
        weights.model,
        checkpoints.family,
        checkpoints.modality,
        weights.base_model,
        weights.size_parameter,
        weights.size_rule,
        weights.step,
        weights.stack,
        weights.layer,
        weights.depth,
        weights.matrix,
        weights.attention,
        weights.heads,
        weights.expert,
        weights.n_rows,
        weights.n_columns,
        weights.full_rank,
        weights.epsilon,
        weights.below_noise_floor,
        weights.numerical_rank,
        weights.share
    from weights
    left join checkpoints
        on checkpoints.model = weights.model
)

select * from final

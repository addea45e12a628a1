-- What is the numerical rank of each projection's heads, and of the whole matrix (Yu et al. 2026, Fig. 9)?
with heads as (
    select
        study,
        model,
        step,
        stack,
        layer,
        matrix,
        attention,
        epsilon,
        any_value(heads) as heads,
        any_value(full_rank) as head_width,
        bool_or(below_noise_floor) as below_noise_floor,
        avg(numerical_rank) as head_rank,
        min(numerical_rank) as head_rank_low,
        max(numerical_rank) as head_rank_high,
        avg(share) as head_share
    from matrix_ranks
    where what = 'weight'
        and head is not null
        and reason is null
    group by all
),

final as (
    select
        heads.*,
        whole.full_rank as width,
        whole.numerical_rank as whole_rank,
        whole.share as whole_share
    from heads
    inner join weight_ranks as whole
        on whole.study = heads.study
        and whole.model = heads.model
        and whole.step is not distinct from heads.step
        and whole.stack = heads.stack
        and whole.layer = heads.layer
        and whole.matrix = heads.matrix
        and whole.attention is not distinct from heads.attention
        and whole.epsilon = heads.epsilon
)

select * from final

-- What is the numerical rank of the embedded tokens, the input of the first block (Yu et al. 2026, section 2)?
-- For a model with several stacks, the row is that of the stack that reads the tokenised series.
with final as (
    select flow_of_ranks.* exclude (layer, depth, tokens)
    from flow_of_ranks
    semi join checkpoints
        on checkpoints.model = flow_of_ranks.model
        and checkpoints.input_stack = flow_of_ranks.stack
    where flow_of_ranks.layer = 0
        and flow_of_ranks.tokens = 'valued'
)

select * from final

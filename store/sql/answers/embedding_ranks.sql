-- What is the numerical rank of the embedded tokens, the input of the first block (rank_structure.md section 2)?
-- For a model with two stacks, the row is the encoder's, whose name comes later in the alphabet.
with final as (
    select * exclude (layer, depth, tokens)
    from flow_of_ranks
    where layer = 0
        and tokens = 'valued'
    qualify stack = max(stack) over (partition by study, model, dataset, condition)
)

select * from final

-- What is the numerical rank of the embedded tokens, the input of the first block (rank_structure.md section 2)?
-- Of two stacks the encoder's (the later by name).
with final as (
    select * exclude (layer, depth, tokens)
    from flow_of_ranks
    where layer = 0
        and tokens = 'valued'
    qualify stack = max(stack) over (partition by study, model, dataset, condition)
)

select * from final

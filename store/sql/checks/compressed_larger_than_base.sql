-- No compressed model is larger than its base by more than 1 %, which truncated heads may need for their biases.
with final as (
    select model, size_ratio, attention_ratio
    from compression
    where size_ratio > 1.01
        or attention_ratio > 1.01
)

select * from final

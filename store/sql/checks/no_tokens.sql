-- Every geometry row is measured on at least one token.
with final as (
    select
        study,
        model,
        dataset,
        condition,
        stack,
        layer,
        n_tokens
    from geometry
    where n_tokens < 1
)

select * from final

-- No Jacobian's norm exceeds the right side of Lemma 1 that we prove.
with final as (
    select
        model,
        dataset,
        condition,
        stack,
        layer,
        head,
        instance,
        norm,
        safe
    from lemma1_instances
    where violates_safe
)

select * from final

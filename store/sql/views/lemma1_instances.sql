-- Which right sides of Lemma 1 does the Jacobian's norm of each instance exceed (by more than a relative 1e-9)?
with final as (
    select
        *,
        norm > printed * (1 + 1e-9) as violates_printed,
        norm > appendix * (1 + 1e-9) as violates_appendix,
        norm > safe * (1 + 1e-9) as violates_safe
    from jacobian
)

select * from final

-- By which right sides of Lemma 1 is the Jacobian's norm of each instance not bounded (beyond a relative 1e-9)?
with final as (
    select
        *,
        norm > printed * (1 + 1e-9) as violates_printed,
        norm > appendix * (1 + 1e-9) as violates_appendix,
        norm > safe * (1 + 1e-9) as violates_safe
    from jacobian
)

select * from final

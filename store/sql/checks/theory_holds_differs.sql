-- The column `holds` agrees with a second comparison of both sides.
with final as (
    select
        experiment,
        form,
        seed,
        instance,
        side,
        y,
        bound,
        floor,
        holds,
        holds_again
    from theory_ratios
    where holds is distinct from holds_again
)

select * from final

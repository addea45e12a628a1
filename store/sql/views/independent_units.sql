-- Which models are independent of each other, and what are their isotropy and error in each cell?
-- A model with a base model is a copy of it. A snapshot is an earlier state of the model at the end of its training.
with final as (
    select *
    from nmse_against_isotropy
    where base_model is null
        and model not in (
            select model
            from population
            where not is_final
        )
)

select * from final

-- Which data sets of a study with a population are kept for confirming hypotheses, and no other test may score?
with final as (
    select distinct study, dataset
    from population_units
    where half = 'confirmed'
)

select * from final

-- Which data sets of a study with a population are kept for confirming hypotheses, and no other test may score?
-- The first bit of the SHA-256 of the name decides.
with final as (
    select distinct
        measured.study,
        measured.dataset
    from nmse_against_isotropy as measured
    semi join population
        on population.model = measured.model
    where sha256(measured.dataset) >= '8'
)

select * from final

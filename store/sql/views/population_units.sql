-- What are the isotropy and the error of each snapshot of the population in each cell, and its validation loss?
-- half: the first bit of the SHA-256 of the data set's name decides whether tests may explore it, or whether it is kept
-- for confirming hypotheses.
with final as (
    select
        measured.study,
        measured.measure,
        measured.dataset,
        measured.condition,
        case when sha256(measured.dataset) < '8' then 'explored' else 'confirmed' end as half,
        measured.model,
        population.run,
        population.family,
        population.size,
        population.run_seed,
        population.step,
        population.is_final,
        population.validation_loss,
        measured.isotropy,
        measured.log_nmse,
        case when scores.wql > 0 and isfinite(scores.wql) then ln(scores.wql) end as log_wql
    from nmse_against_isotropy as measured
    inner join population
        using (model)
    left join scores
        using (study, model, dataset, condition)
)

select * from final

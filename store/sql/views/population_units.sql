-- What are the isotropy and the error of each snapshot of the population in each cell, and its validation loss?
-- half: whether tests may explore the data set, or it is kept for confirming hypotheses. The params say so, or else the
-- first bit of the SHA-256 of its name.
with final as (
    select
        measured.study,
        measured.measure,
        measured.dataset,
        measured.condition,
        case when coalesce(datasets.confirms, sha256(measured.dataset) >= '8') then 'confirmed' else 'explored' end as half,
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
    left join datasets
        on datasets.dataset = measured.dataset
)

select * from final

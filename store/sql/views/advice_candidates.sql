-- Which models and contexts could have been chosen for each data set, with their isotropy and both errors?
-- Compressed models, snapshots and conditions with noise are not candidates. For a model with a softmax head,
-- log_partition_spread is a further measure: a small spread of its log-partition counts as isotropic.
with measured as (
    select
        study,
        measure,
        model,
        dataset,
        condition,
        context,
        noise,
        isotropy,
        log_nmse,
        is_filled
    from independent_units
),

spreads as (
    select
        measured.* replace ('log_partition_spread' as measure, -partition.log_z_sd as isotropy)
    from measured
    inner join partition
        using (model, dataset, condition)
    where measured.measure = 'zeta'
),

candidates as (
    select *
    from measured
    union all
    select *
    from spreads
),

final as (
    select
        candidates.study,
        candidates.measure,
        candidates.model,
        candidates.dataset,
        candidates.condition,
        candidates.context,
        candidates.is_filled,
        candidates.isotropy,
        candidates.log_nmse,
        earlier.log_nmse as log_nmse_earlier
    from candidates
    left join validation_scores as earlier
        using (study, model, dataset, condition)
    where candidates.isotropy is not null
        and candidates.log_nmse is not null
        and candidates.noise = 0
)

select * from final

-- What are the isotropy (larger is more isotropic) and the NMSE of each (model, data set, condition)?
with scored as (
    select distinct study
    from scores
),

final as (
    select
        isotropy.*,
        scores.nmse,
        scores.nmse_median,
        scores.nmse_pooled,
        scores.log_nmse,
        scores.nmse_floor,
        scores.is_floored,
        scores.n_context_min,
        scores.n_context_median,
        scores.context_longest >= isotropy.context as is_filled,
        scores.n as n_windows,
        scores.n_null as n_windows_null
    from isotropy
    inner join scored
        using (study)
    left join scores
        using (study, model, dataset, condition)
)

select * from final

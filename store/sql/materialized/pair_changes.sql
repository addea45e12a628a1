-- For each model, do isotropy and log NMSE change together over data sets when the context or the noise changes?
-- An effect that the condition has on all data sets equally does not count, because only the ranks
-- of the changes are compared.
with changes as (
    select
        study,
        kind,
        measure,
        pair,
        model,
        isotropy_change,
        log_nmse_change
    from condition_pairs
    where kind != 'dataset'
        and isotropy_change is not null
        and log_nmse_change is not null
),

ranks as (
    select
        *,
        rank() over by_isotropy_change + (count(*) over (by_isotropy_change range between current row and current row) - 1) / 2 as rank_isotropy,
        rank() over by_log_nmse_change + (count(*) over (by_log_nmse_change range between current row and current row) - 1) / 2 as rank_nmse
    from changes
    window
        by_isotropy_change as (
            partition by study, kind, measure, pair, model
            order by isotropy_change
        ),
        by_log_nmse_change as (
            partition by study, kind, measure, pair, model
            order by log_nmse_change
        )
),

final as (
    select
        study,
        kind,
        measure,
        pair,
        model,
        count(*) as n,
        case
            when count(*) >= 3 and count(distinct rank_isotropy) > 1 and count(distinct rank_nmse) > 1
                then corr(rank_isotropy, rank_nmse)
        end as spearman
    from ranks
    group by
        study,
        kind,
        measure,
        pair,
        model
)

select * from final

-- In what share of pairs has b more isotropy or more error, are the two opposite, and do their changes correlate?
-- A tie counts one half in a share. changes_spearman: mean over models of the correlation in
-- pair_changes.
with shares as (
    select
        study,
        kind,
        measure,
        pair,
        statistic,
        count(answer) as n,
        count(*) - count(answer) as n_null,
        count(*) filter (where not is_filled) as n_unfilled,
        count(answer) filter (where answer = 0) as n_ties,
        count(distinct "cluster") filter (where answer is not null) as n_clusters,
        (avg(answer) + 1) / 2 as estimate,
        avg(change) as mean_change
    from pair_signs
    group by
        study,
        kind,
        measure,
        pair,
        statistic
),

changes as (
    select
        study,
        kind,
        measure,
        pair,
        sum(n)::bigint as n,
        avg(spearman) as estimate
    from pair_changes
    group by
        study,
        kind,
        measure,
        pair
),

final as (
    select *
    from shares
    union all
    select
        shares.study,
        shares.kind,
        shares.measure,
        shares.pair,
        'changes_spearman',
        shares.n,
        shares.n_null,
        shares.n_unfilled,
        null,
        shares.n_clusters,
        changes.estimate,
        null
    from shares
    left join changes
        on changes.study = shares.study
        and changes.kind = shares.kind
        and changes.measure = shares.measure
        and changes.pair = shares.pair
    where shares.statistic = 'agreement'
        and shares.kind != 'dataset'
)

select * from final

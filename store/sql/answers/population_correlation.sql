-- Does isotropy go with error in a population of trainings: across runs, inside families, across seeds, within runs?
-- Only the exploring half of the data sets counts; hypothesis_tests shows the other.
-- within_runs is the partial correlation over the snapshots of a run, given its validation loss.
with final as (
    select
        study,
        measure,
        "grouping",
        case when statistic = 'spearman_wql' then 'wql' else 'nmse' end as error,
        estimate,
        low,
        high,
        p,
        p_by,
        detectable,
        n,
        n_clusters,
        method,
        reason
    from inference
    where answer = 'population_correlation'
)

select * from final

-- Size, skill and last layer of the models
-- Errors: on the real data sets of checkpoints.skill, else on unseen windows. Isotropy and dimension: means over the data
-- sets of the study. Ranks: over the studies of the papers, so that a user's own study changes no number.
with isotropy as (
    select
        model,
        avg(zeta_adjusted_corrected) as zeta_adjusted_corrected,
        avg(isoscore) as isoscore
    from last_layer
    where study = $study
    group by model
),

dimensions as (
    select
        last_layer.model,
        avg(dimensions.effective_dimension / dimensions.width) as dimension_share
    from last_layer
    inner join effective_dimension as dimensions
        using (study, model, dataset, condition, stack, layer, normed)
    where last_layer.study = $study
        and dimensions.variance_share = 0.8
    group by last_layer.model
),

ranks as (
    select
        flow.model,
        avg(flow.share) filter (where flow.depth = 0) as rank_share_first,
        avg(flow.share) filter (where flow.depth = 1) as rank_share_last
    from flow_of_ranks as flow
    inner join checkpoints
        on checkpoints.model = flow.model
        and checkpoints.output_stack = flow.stack
    inner join studies
        on studies.study = flow.study
        and studies.figure is not null
    where flow.epsilon = 0.01
    group by flow.model
)

select
    checkpoints.model,
    checkpoints.parameters,
    real_sets.n_datasets as n_real,
    real_sets.wql as real_wql,
    real_sets.wql_low as real_low,
    real_sets.wql_high as real_high,
    real_sets.mae as real_mae,
    skill.n_datasets,
    skill.wql_vs_seasonal,
    skill.seasonal_low,
    skill.seasonal_high,
    isotropy.zeta_adjusted_corrected,
    isotropy.isoscore,
    dimensions.dimension_share,
    ranks.rank_share_first,
    ranks.rank_share_last
from checkpoints
anti join snapshot_models
    on snapshot_models.model = checkpoints.model
left join skill
    on skill.model = checkpoints.model
left join mean_skill as real_sets
    on real_sets.model = checkpoints.model
    and real_sets.kind = 'real'
left join isotropy
    on isotropy.model = checkpoints.model
left join dimensions
    on dimensions.model = checkpoints.model
left join ranks
    on ranks.model = checkpoints.model
where coalesce(real_sets.wql, skill.wql_vs_seasonal, isotropy.zeta_adjusted_corrected, ranks.rank_share_first) is not null
order by checkpoints.model

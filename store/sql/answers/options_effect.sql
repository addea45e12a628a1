-- How do results change if the same weights are loaded with other options, such as bfloat16 or other positions?
-- The base is a model of the same files with other `options`. The ratios of WQL (pooled over
-- series) and of MASE (averaged over series) are geometric means over the data sets and conditions
-- with scores of both models.
-- isotropy_change: mean over the last states of both models; above 0 the states are more isotropic
-- (ζ′ is nearer to its null mean).
-- If only the precision differs, both models draw samples with the same seeds. Otherwise a ratio of
-- sampled forecasts contains chance.
with made as (
    select distinct model, base_model
    from cell_scores
    where base_model is not null
    union
    select distinct model, base_model
    from last_layer
    where base_model is not null
),

pairs as (
    select
        checkpoints.model,
        checkpoints.options,
        base.model as base_model,
        base.options as base_options
    from made
    inner join checkpoints
        on checkpoints.model = made.model
    inner join checkpoints as base
        on base.model = made.base_model
        and base.fingerprint = checkpoints.fingerprint
        and base.options is distinct from checkpoints.options
),

ratios as (
    select
        pairs.model,
        scored.wql / nullif(base_scored.wql, 0) as wql,
        scored.mase / nullif(base_scored.mase, 0) as mase
    from pairs
    inner join cell_scores as scored
        on scored.model = pairs.model
    inner join cell_scores as base_scored
        on base_scored.model = pairs.base_model
        and base_scored.dataset = scored.dataset
        and base_scored.condition = scored.condition
),

losses as (
    select
        model,
        count(*) filter (where wql > 0) as n_cells,
        exp(avg(ln(wql)) filter (where wql > 0)) as wql_ratio,
        count(*) filter (where mase > 0) as n_mase,
        exp(avg(ln(mase)) filter (where mase > 0)) as mase_ratio
    from ratios
    group by model
),

seen as (
    -- Studies may have different last layers, because a study may measure only the first ones.
    select
        model,
        dataset,
        condition,
        max(2 * layer + normed::integer) as place,
        arg_max(zeta_adjusted_corrected, 2 * layer + normed::integer) as zeta
    from last_layer
    group by all
),

changes as (
    select
        pairs.model,
        abs(base_seen.zeta) - abs(seen.zeta) as change
    from pairs
    inner join seen
        on seen.model = pairs.model
    inner join seen as base_seen
        on base_seen.model = pairs.base_model
        and base_seen.dataset = seen.dataset
        and base_seen.condition = seen.condition
        and base_seen.place = seen.place
    where isfinite(seen.zeta)
        and isfinite(base_seen.zeta)
),

states as (
    select
        model,
        count(*) as n_states,
        avg(change) as isotropy_change
    from changes
    group by model
),

final as (
    select
        pairs.*,
        coalesce(losses.n_cells, 0) as n_cells,
        losses.wql_ratio,
        coalesce(losses.n_mase, 0) as n_mase,
        losses.mase_ratio,
        coalesce(states.n_states, 0) as n_states,
        states.isotropy_change
    from pairs
    left join losses
        on losses.model = pairs.model
    left join states
        on states.model = pairs.model
    order by pairs.base_model, pairs.model
)

select * from final

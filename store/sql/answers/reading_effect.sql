-- What does it change to read the same weights otherwise: in bfloat16, with other positions (`options` of a model)?
-- Ratios of WQL (pooled over series) and of MASE (mean over series) to the model that is read as its files say: geometric
-- means over the n_cells data sets and conditions that both were scored on. isotropy_change: of the measure named, mean
-- over those that both have states of; above 0 the states are more isotropic.
with scored as (
    select
        model,
        dataset,
        condition,
        any_value(base_model) as base_model,
        any_value(wql_pooled) as wql,
        any_value(mase) as mase
    from scores
    group by
        model,
        dataset,
        condition
),

seen as (
    select
        model,
        dataset,
        condition,
        any_value(base_model) as base_model,
        any_value(isotropy) as isotropy
    from isotropy
    where measure = 'zeta_adjusted'
    group by
        model,
        dataset,
        condition
),

cells as (
    select
        model,
        dataset,
        condition,
        coalesce(scored.base_model, seen.base_model) as base_model,
        scored.wql,
        scored.mase,
        seen.isotropy
    from scored
    full outer join seen using (model, dataset, condition)
),

pairs as (
    select
        checkpoints.model,
        base.model as base_model,
        checkpoints.options,
        cells.wql / nullif(base_cells.wql, 0) as wql,
        cells.mase / nullif(base_cells.mase, 0) as mase,
        cells.isotropy - base_cells.isotropy as isotropy
    from cells
    inner join checkpoints
        on checkpoints.model = cells.model
    inner join checkpoints as base
        on base.model = cells.base_model
        and base.fingerprint = checkpoints.fingerprint
    inner join cells as base_cells
        on base_cells.model = base.model
        and base_cells.dataset = cells.dataset
        and base_cells.condition = cells.condition
),

final as (
    select
        base_model,
        model,
        options,
        count(*) filter (where wql is not null) as n_cells,
        exp(avg(ln(wql)) filter (where wql > 0)) as wql_ratio,
        exp(avg(ln(mase)) filter (where mase > 0)) as mase_ratio,
        count(isotropy) as n_states,
        avg(isotropy) as isotropy_change
    from pairs
    group by
        base_model,
        model,
        options
    order by
        base_model,
        model
)

select * from final

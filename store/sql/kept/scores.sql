-- How well does each model forecast each data set under each condition (means over windows; log NMSE floored at 1e-6)?
with windows as (
    select
        * replace (
            case when isfinite(nmse) then nmse end as nmse,
            case when isfinite(nmse_power) then nmse_power end as nmse_power,
            case when isfinite(wql) then wql end as wql,
            case when isfinite(mase) then mase end as mase
        )
    from forecasts
),

means as (
    select
        study,
        model,
        any_value(base_model) as base_model,
        any_value(rank) as rank,
        dataset,
        condition,
        any_value(context) as context,
        any_value(noise) as noise,
        count(*) as n,
        count(distinct series) as n_series,
        count(*) - count(nmse) as n_null,
        count(*) - count(mase) as n_null_mase,
        avg(nmse) as nmse,
        median(nmse) as nmse_median,
        sum(squared_error) filter (where nmse is not null)
            / sum(nmse_denominator) filter (where nmse is not null) as nmse_pooled,
        avg(nmse_power) as nmse_power,
        avg(wql) as wql,
        sum(quantile_loss) / nullif(sum(target_abs * len(levels)), 0) as wql_pooled,
        avg(mase) as mase
    from windows
    group by
        study,
        model,
        dataset,
        condition
),

final as (
    select
        *,
        1e-6 as nmse_floor,
        case when nmse is not null then ln(greatest(nmse, 1e-6)) end as log_nmse,  -- greatest() passes over nulls
        nmse < 1e-6 as is_floored
    from means
)

select * from final

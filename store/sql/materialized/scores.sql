-- How well does each model forecast each data set under each condition (means over windows; log NMSE floored at 1e-6)?
-- wql is pooled as in the Chronos evaluation: the sum of the quantile losses of all windows and
-- steps, divided by the number of levels times the sum of |y|. A window whose targets are all 0
-- adds its losses. wql_window_mean is the mean of the WQL of single windows, without the n_null_wql
-- windows that have no WQL of their own.
with windows as (
    select
        * replace (
            case when isfinite(nmse) then nmse end as nmse,
            case when isfinite(nmse_power) then nmse_power end as nmse_power,
            case when isfinite(wql_window) then wql_window end as wql_window,
            case when isfinite(mase) then mase end as mase,
            case when isfinite(mase_gluonts) then mase_gluonts end as mase_gluonts
        )
    from forecasts
),

means as (
    select
        study,
        model,
        any_value(base_model) as base_model,
        any_value(size_parameter) as size_parameter,
        any_value(size_rule) as size_rule,
        dataset,
        condition,
        any_value(context) as context,
        any_value(noise) as noise,
        count(*) as n,
        count(distinct series) as n_series,
        -- n_context is 0 for a window that was not forecast.
        min(n_context) filter (where n_context > 0) as n_context_min,
        median(n_context) filter (where n_context > 0) as n_context_median,
        max(origin) filter (where n_context > 0) as context_longest,
        count(*) - count(nmse) as n_null,
        count(*) - count(wql_window) as n_null_wql,
        count(*) - count(mase) as n_null_mase,
        avg(nmse) as nmse,
        median(nmse) as nmse_median,
        sum(squared_error) filter (where nmse is not null)
            / sum(nmse_denominator) filter (where nmse is not null) as nmse_pooled,
        avg(nmse_power) as nmse_power,
        sum(quantile_loss) / nullif(sum(target_abs * len(levels)), 0) as wql,
        avg(wql_window) as wql_window_mean,
        avg(mase) as mase,
        avg(mase_gluonts) as mase_gluonts
    from windows
    group by all
),

final as (
    select
        *,
        1e-6 as nmse_floor,
        -- The case is needed because greatest() ignores nulls.
        case when nmse is not null then ln(greatest(nmse, 1e-6)) end as log_nmse,
        nmse < 1e-6 as is_floored
    from means
)

select * from final

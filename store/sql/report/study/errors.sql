-- Forecast error by data set, condition and model
with errors as (
    select
        scores.dataset,
        scores.condition,
        scores.model,
        baselines.model is not null as is_baseline,
        scores.n_series,
        scores.n,
        scores.wql,
        scores.mase,
        scores.nmse,
        validation_scores.nmse as nmse_validation
    from scores
    left join baselines
        on baselines.model = scores.model
    anti join population -- without snapshots of a population before the end of their training
        on population.model = scores.model
        and not population.is_final
    left join validation_scores
        on validation_scores.study = scores.study
        and validation_scores.model = scores.model
        and validation_scores.dataset = scores.dataset
        and validation_scores.condition = scores.condition
    where scores.study = $study
),

final as (
    select
        errors.dataset,
        errors.condition,
        errors.model,
        case when errors.is_baseline then 'baseline' else 'model' end as kind,
        errors.n_series,
        errors.n as n_windows,
        errors.wql,
        errors.wql / nullif(naive.wql, 0) as wql_ratio,
        errors.mase,
        datasets.season,
        errors.nmse,
        errors.nmse_validation
    from errors
    left join errors as naive
        on naive.dataset = errors.dataset
        and naive.condition = errors.condition
        and naive.model = 'seasonal-naive'
    left join datasets
        on datasets.dataset = errors.dataset
    order by errors.dataset, errors.condition, errors.wql, errors.model
)

select * from final

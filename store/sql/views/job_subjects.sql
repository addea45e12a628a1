-- What is each job about: which model (of a compressed one its base), else which experiment?
with rows_of_jobs as (
    select job_key, coalesce(base_model, model) as subject from compression
    union all
    select job_key, coalesce(base_model, model) from fidelity
    union all
    select job_key, coalesce(base_model, model) from dumps
    union all
    select job_key, coalesce(base_model, model) from geometry
    union all
    select job_key, coalesce(base_model, model) from alignment
    union all
    select job_key, coalesce(base_model, model) from partition
    union all
    select job_key, coalesce(base_model, model) from jacobian
    union all
    select job_key, coalesce(base_model, model) from spectra
    union all
    select job_key, coalesce(base_model, model) from planes
    union all
    select job_key, coalesce(base_model, model) from angles
    union all
    select job_key, coalesce(base_model, model) from forecasts
    union all
    select job_key, model from training
    union all
    select job_key, model from skill
    union all
    select job_key, experiment from theory
    union all
    select key, coalesce(json_extract_string(spec, '$.model'), task) from failures
),

final as (
    select
        job_key,
        min(subject) as subject
    from rows_of_jobs
    group by
        job_key
)

select * from final

-- Loss of compressed attention by method and size, with the paper's Table 2
with study_models as (
    select distinct scored.model, checkpoints.family
    from (
        select model from forecasts where study = $study
        union all
        select model from fidelity where study = $study
    ) as scored
    inner join checkpoints
        on checkpoints.model = scored.model
)

select
    svd.whose,
    svd.family,
    svd.model,
    svd.method,
    coalesce(svd.attention_ratio, svd.rank_ratio) as size,
    svd.rank_ratio,
    svd.wql_ratio,
    svd.mase_ratio,
    svd.overlap,
    svd.lppl
from svd_compression as svd
where (svd.whose = 'published' and svd.family in (select family from study_models))
    or svd.model in (select model from study_models)
order by svd.family, svd.whose, svd.method, svd.model, size

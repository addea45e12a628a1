-- What cutting the attention costs, by method and size, the paper's Table 2 beside it
with asked as (
    select distinct
        found.model,
        checkpoints.family
    from (
        select model from forecasts where study = $study
        union all
        select model from fidelity where study = $study
    ) as found
    inner join checkpoints
        on checkpoints.model = found.model
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
where (svd.whose = 'published' and svd.family in (select family from asked))
    or svd.model in (select model from asked)
order by svd.family, svd.whose, svd.method, svd.model, size

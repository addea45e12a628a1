-- Debiased CKA of the layers of two models, mean over data sets
select
    model,
    other,
    condition,
    layer || case when normed then '′' else '' end as a,
    other_layer || case when other_normed then '′' else '' end as b,
    avg(cka) as cka,
    min(cka_low) as cka_low,
    max(cka_high) as cka_high,
    avg(procrustes) as procrustes,
    count(cka) as n_datasets
from similarity
where study = $study
    and model not in (select model from population where not is_final)
group by model, other, condition, layer, normed, other_layer, other_normed
order by model, other, condition, layer, normed, other_layer, other_normed

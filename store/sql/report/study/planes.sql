-- Embedded tokens on two singular directions
select
    planes.model,
    checkpoints.modality,
    model_x_values.x as x_axis,
    planes.dataset,
    planes.condition,
    planes.token,
    planes.type,
    planes.value,
    round(planes.x, 5) as x,
    round(planes.y, 5) as y
from planes
left join checkpoints
    using (model)
left join model_x_values
    using (study, model)
where planes.study = $study
qualify planes.token % ceil(count(*) over (partition by planes.model, planes.dataset, planes.condition) / 1000) = 0
order by planes.model, planes.dataset, planes.condition, planes.token

-- Embedded tokens on two singular directions
with grid as ( -- the quantity in which the models of a study differ
    select
        entry.key as model,
        entry.value::double as x
    from studies,
        lateral (select unnest(map_entries(x_axis::json::map(varchar, double)), recursive := false) as entry)
    where study = $study
        and x_axis is not null
)

select
    planes.model,
    checkpoints.modality,
    grid.x as x_axis,
    planes.dataset,
    planes.condition,
    planes.token,
    planes.type,
    planes.value,
    round(planes.x, 5) as x,
    round(planes.y, 5) as y
from planes
left join checkpoints
    on checkpoints.model = planes.model
left join grid
    on grid.model = planes.model
where planes.study = $study
qualify planes.token % ceil(count(*) over (partition by planes.model, planes.dataset, planes.condition) / 1000) = 0
order by planes.model, planes.dataset, planes.condition, planes.token

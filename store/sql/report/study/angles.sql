-- Angles in degrees, one row per vector
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
    angles.model,
    grid.x,
    angles.dataset,
    angles.condition,
    angles.what,
    angles.matrix,
    angles.stack,
    angles.layer,
    angles.dimension,
    angles.row,
    angles.head,
    array_to_string(
        list_transform(angles.angles, lambda a: coalesce(try_cast(round(degrees(a)) as utinyint)::varchar, '')), ' '
    ) as degrees
from angles
left join grid
    on grid.model = angles.model
where angles.study = $study
order by angles.model, angles.dataset, angles.condition, angles.what, angles.stack, angles.layer, angles.row

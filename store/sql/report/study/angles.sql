-- Angles in degrees, one row per vector
select
    angles.model,
    model_x_values.x,
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
left join model_x_values
    using (study, model)
where angles.study = $study
order by angles.model, angles.dataset, angles.condition, angles.what, angles.stack, angles.layer, angles.row

-- Where does each model of a study stand on its `x_axis`, the quantity in which the models of the study differ?
with entries as (
    select
        study,
        unnest(map_entries(x_axis::json::map(varchar, double)), recursive := false) as entry
    from studies
    where x_axis is not null
),

final as (
    select
        study,
        entry.key as model,
        entry.value::double as x
    from entries
)

select * from final

-- Singular values of the embedded tokens
with grid as ( -- the quantity in which the models of a study differ
    select
        entry.key as model,
        entry.value::double as x
    from studies,
        lateral (select unnest(map_entries(x_axis::json::map(varchar, double)), recursive := false) as entry)
    where study = $study
        and x_axis is not null
),

inputs as (
    select *
    from spectra
    semi join checkpoints
        on checkpoints.model = spectra.model
        and checkpoints.input_stack = spectra.stack
    where study = $study
        and what = 'input'
        and layer = 0
        and not normed
        and tokens = 'valued'
),

ratios as (
    select
        * exclude (singular_values, singular_values_centred),
        generate_subscripts(singular_values, 1) as j,
        unnest(singular_values) / nullif(singular_values[1], 0) as ratio
    from inputs
)

select
    ratios.model,
    checkpoints.modality,
    grid.x,
    ratios.dataset,
    ratios.condition,
    ratios.n_rows,
    ratios.n_columns as width,
    ratios.floor,
    ratios.j,
    ratios.ratio
from ratios
left join checkpoints
    on checkpoints.model = ratios.model
left join grid
    on grid.model = ratios.model
where ratios.ratio > ratios.floor
    and (ratios.j <= 48 or ratios.j % 8 = 0)
order by ratios.model, ratios.dataset, ratios.condition, ratios.j

-- Singular values of the embedded tokens
with inputs as (
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
    model_x_values.x,
    ratios.dataset,
    ratios.condition,
    ratios.n_rows,
    ratios.n_columns as width,
    ratios.floor,
    ratios.j,
    ratios.ratio
from ratios
left join checkpoints
    using (model)
left join model_x_values
    using (study, model)
where ratios.ratio > ratios.floor
    and (ratios.j <= 48 or ratios.j % 8 = 0)
order by ratios.model, ratios.dataset, ratios.condition, ratios.j

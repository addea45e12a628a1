-- Singular values of every layer's input for a constant series
with ratios as (
    select
        * exclude (singular_values, singular_values_centred),
        generate_subscripts(singular_values, 1) as j,
        unnest(singular_values) / nullif(singular_values[1], 0) as ratio
    from spectra
    where study = $study
        and what = 'constant'
        and n_rows > 1 -- one token has one singular value
        and not normed
)

select
    model,
    stack,
    layer,
    tokens,
    n_rows,
    floor,
    j,
    max(ratio) as ratio
from ratios
where ratio > floor
    and j <= 48
group by all
order by model, stack, tokens desc, layer, j

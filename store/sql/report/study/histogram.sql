-- Relative singular values of weights, counted
with weights as (
    select
        model,
        stack,
        layer,
        matrix,
        unnest(singular_values) / nullif(singular_values[1], 0) as ratio
    from spectra
    semi join checkpoints
        on checkpoints.model = spectra.model
        and checkpoints.input_stack = spectra.stack
    where study = $study
        and what = 'weight'
        and matrix in ('q', 'mlp_in')
        and attention is distinct from 'cross'
        and head is null
        and step is null
)

select  -- n are in (10^low, 10^(low + 1/20)]; values up to 10^-5 are counted at 10^-5
    model,
    stack,
    matrix,
    layer,
    (ceil(round(20 * log10(greatest(ratio, 1e-5)), 9)) - 1) / 20 as low,
    count(*) as n
from weights
where ratio is not null
group by all
order by model, matrix desc, layer, low

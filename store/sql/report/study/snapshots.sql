-- Singular values of query projections during training, counted
with weights as (
    select
        model,
        step,
        stack,
        layer,
        unnest(singular_values) as sigma
    from spectra
    semi join checkpoints
        on checkpoints.model = spectra.model
        and checkpoints.input_stack = spectra.stack
    where study = $study
        and what = 'weight'
        and matrix = 'q'
        and attention is distinct from 'cross'
        and head is null
)

select  -- n are in (10^low, 10^(low + 1/20)]; step null is the finished model
    model,
    step,
    stack,
    layer,
    (ceil(round(20 * log10(sigma), 9)) - 1) / 20 as low,
    count(*) as n
from weights
where sigma > 0
group by all
order by model, step nulls last, layer, low

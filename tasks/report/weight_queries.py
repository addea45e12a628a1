"""SQL queries for the figures of weight ranks, and for the quantity that a grid of models varies."""

from __future__ import annotations

from tsfmscope.tasks.report.query import Query

GRID = """grid as (  -- what a grid of models varies
    select
        entry.key as model,
        entry.value::double as x
    from studies,
        lateral (select unnest(map_entries(x_axis::json::map(varchar, double)), recursive := false) as entry)
    where study = {study}
        and x_axis is not null
)"""
# Histogram bins per decade.
_BINS = 5
WEIGHTS = Query(
    "Numerical rank of every query projection",
    """select
    model,
    modality,
    concat_ws(' ', stack, nullif(attention, 'self')) as stack,
    layer,
    epsilon,
    max(full_rank) as full_rank,
    bool_or(below_noise_floor) as below_noise_floor,
    avg(numerical_rank) as rank,
    min(numerical_rank) as low,
    max(numerical_rank) as high,
    count(*) as n
from weight_ranks
where study = {study}
    and matrix = 'q'
    and attention is distinct from 'cross'
    and step is null
    and epsilon in (1e-1, 1e-2, 1e-3)
group by all
order by model, stack, epsilon desc, layer""",
)
TREND = Query(
    "Numerical rank along the grid of models",
    f"""with {GRID},

ranks as (
    select
        model,
        'embedded tokens' as quantity,
        epsilon,
        below_noise_floor,
        width,
        numerical_rank as rank
    from embedding_ranks
    where study = {{study}}
    union all
    select
        model,
        'query projections',
        epsilon,
        below_noise_floor,
        n_columns,
        numerical_rank
    from weight_ranks
    where study = {{study}}
        and matrix = 'q'
        and step is null
    union all
    select
        model,
        'their heads',
        epsilon,
        below_noise_floor,
        head_width,
        head_rank
    from head_ranks
    where study = {{study}}
        and matrix = 'q'
        and step is null
        and heads > 0
)

select
    ranks.model,
    checkpoints.family,
    checkpoints.modality,
    ranks.quantity,
    grid.x,
    ranks.epsilon,
    max(ranks.width) as width,
    bool_or(ranks.below_noise_floor) as below_noise_floor,
    avg(ranks.rank) as rank,
    count(*) as n
from ranks
inner join grid
    on grid.model = ranks.model
left join checkpoints
    on checkpoints.model = ranks.model
where ranks.epsilon in (1e-1, 1e-2, 1e-3)
group by all
order by ranks.quantity, checkpoints.family, ranks.epsilon desc, grid.x, ranks.model""",
)
HISTOGRAM = Query(
    "Relative singular values of weights, counted",
    f"""with weights as (
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
    where study = {{study}}
        and what = 'weight'
        and matrix in ('q', 'mlp_in')
        and attention is distinct from 'cross'
        and head is null
        and step is null
)

select  -- n are in (10^low, 10^(low + 1/{_BINS})]
    model,
    stack,
    matrix,
    layer,
    (ceil(round({_BINS} * log10(ratio), 9)) - 1) / {_BINS} as low,
    count(*) as n
from weights
where ratio > 1e-5
group by all
order by model, matrix desc, layer, low""",
)
SNAPSHOTS = Query(
    "Singular values of query projections during training, counted",
    f"""with weights as (
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
    where study = {{study}}
        and what = 'weight'
        and matrix = 'q'
        and attention is distinct from 'cross'
        and head is null
)

select  -- n are in (10^low, 10^(low + 1/{_BINS})]; step null is the finished model
    model,
    step,
    stack,
    layer,
    (ceil(round({_BINS} * log10(sigma), 9)) - 1) / {_BINS} as low,
    count(*) as n
from weights
where sigma > 0
group by all
order by model, step nulls last, layer, low""",
)

"""SQL queries for the figures of ranks, on the tables and views of results.duckdb."""

from __future__ import annotations

from tsfmscope.tasks.report import compression_queries
from tsfmscope.tasks.report.query import Query, filled
from tsfmscope.tasks.report.weight_queries import GRID, HISTOGRAM, SNAPSHOTS, TREND, WEIGHTS

# Number of leading singular values that are all drawn. After them, the spectra of embedded tokens
# show every eighth value, and those of constant series none.
_DRAWN = 48

EMBEDDED = Query(
    "Singular values of the embedded tokens",
    f"""with {GRID},

inputs as (
    select *
    from spectra
    semi join checkpoints
        on checkpoints.model = spectra.model
        and checkpoints.input_stack = spectra.stack
    where study = {{study}}
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
    and (ratios.j <= {_DRAWN} or ratios.j % 8 = 0)
order by ratios.model, ratios.dataset, ratios.condition, ratios.j""",
)
PLANES = Query(
    "Embedded tokens on two singular directions",
    f"""with {GRID}

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
where planes.study = {{study}}
qualify planes.token % ceil(count(*) over (partition by planes.model, planes.dataset, planes.condition) / 1000) = 0
order by planes.model, planes.dataset, planes.condition, planes.token""",
)
ANGLES = Query(
    "Angles in degrees, a row a vector",
    f"""with {GRID}

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
where angles.study = {{study}}
order by angles.model, angles.dataset, angles.condition, angles.what, angles.stack, angles.layer, angles.row""",
)
INPUTS = Query(
    "Numerical rank of what every layer is given",
    """select
    model,
    modality,
    stack,
    layer,
    epsilon,
    any_value(width) as full_rank,
    bool_or(below_noise_floor) as below_noise_floor,
    median(numerical_rank) as rank,
    min(numerical_rank) as low,
    max(numerical_rank) as high,
    count(*) as n
from flow_of_ranks
where study = {study}
    and tokens = 'valued'
    and epsilon in (1e-1, 1e-2, 1e-3)
group by all
order by model, stack, epsilon desc, layer""",
)
CONSTANT = Query(
    "Singular values of every layer's input where the series is constant",
    f"""with ratios as (
    select
        * exclude (singular_values, singular_values_centred),
        generate_subscripts(singular_values, 1) as j,
        unnest(singular_values) / nullif(singular_values[1], 0) as ratio
    from spectra
    where study = {{study}}
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
    and j <= {_DRAWN}
group by all
order by model, stack, tokens desc, layer, j""",
)
TESTS = Query(
    "Tests on ranks",
    """select
    measure,
    "grouping",
    block,
    statistic,
    n,
    estimate,
    low,
    high,
    p,
    p_bh,
    reason
from rank_tests
where study = {study}
order by "grouping", measure, block""",
)

OF_PLOT: dict[str, dict[str, Query]] = {
    "spectrum": {"embedded": EMBEDDED, "planes": PLANES},
    "plane": {"planes": PLANES},
    "angles": {"angles": ANGLES, "embedded": EMBEDDED},
    "growth": {"inputs": INPUTS, "weights": WEIGHTS},
    "trend": {"trend": TREND},
    "constant": {"constant": CONSTANT},
    "histogram": {"histogram": HISTOGRAM},
    "snapshots": {"snapshots": SNAPSHOTS},
    **compression_queries.OF_PLOT,
}


def rank_queries(study: str, plot: str) -> dict[str, Query]:
    """Return the queries of a plot of ranks, and `tests`, for this study; empty for any other plot."""
    asked = OF_PLOT.get(plot)
    return {name: filled(query, study) for name, query in {**asked, "tests": TESTS}.items()} if asked else {}

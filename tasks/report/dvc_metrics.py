"""Headline numbers for `dvc metrics` and `dvc exp show`, and the rows that `dvc plots` draws."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from tsfmscope.tasks.report.query import EPSILON, Query, filled

# Tolerance of the numerical rank, relative to the largest singular value; Yu et al. 2026, Fig. 2.
TOLERANCE = 0.01


class Headline(NamedTuple):
    """Query whose first `names` columns are the keys of a metric; the other columns are its numbers."""

    names: int
    sql: str


HEADLINES: dict[str, Headline] = {
    # The grouping that the page's summary uses: per_dataset, which keeps conditions apart and needs
    # three models or more, where it has a correlation; else within_dataset.
    "correlation": Headline(
        2,
        """select
    "grouping",
    measure,
    spearman,
    case when measure = 'zeta_adjusted_corrected' then low end as low,
    case when measure = 'zeta_adjusted_corrected' then high end as high,
    case when measure = 'zeta_adjusted_corrected' then p end as p,
    case when measure = 'zeta_adjusted_corrected' then n end as n
from correlation
where study = {study}
    and "grouping" in ('per_dataset', 'within_dataset')
qualify ("grouping" = 'per_dataset') = (count(spearman) filter (where "grouping" = 'per_dataset') over () > 0)
order by "grouping", measure""",
    ),
    "isotropy": Headline(
        1,
        """select
    model,
    median(isotropy) as median_isotropy,
    median(nmse) as median_nmse
from nmse_against_isotropy
where study = {study}
    and measure = 'zeta_adjusted_corrected'
group by model
order by model""",
    ),
    # Slope of the rank, as a share of the width, against depth from 0 to 1.
    "rank_slope": Headline(
        2,
        f"""select
    split_part(measure, ' ', 1) as what,
    case when modality = 'series' then 'series' else 'other' end as kind,
    avg(estimate) as mean,
    count(*) filter (where estimate > 0) as rising,
    count(*) as models
from (
    select distinct measure, block, estimate
    from inference
    where answer = 'rank_tests'
        and "grouping" = 'model'
        and measure in ('input slope@{TOLERANCE:g}', 'attention slope@{TOLERANCE:g}')
        and estimate is not null
)
inner join checkpoints
    on checkpoints.model = block
group by all
order by all""",
    ),
    # The best of a base model's methods where about a half, or a quarter, of the attention is left.
    "compression": Headline(
        2,
        """select
    base_model,
    case when attention_ratio <= 0.26 then 'a_quarter' else 'a_half' end as attention_left,
    min(wql_ratio) as best_wql_ratio,
    max(overlap) as best_overlap
from compression_frontier
where base_model is not null
    and attention_ratio between 0.2 and 0.51
group by all
order by all""",
    ),
    "skill": Headline(1, "select model, wql_vs_median, wql_vs_seasonal, sine_error\nfrom skill\norder by model"),
    "theory": Headline(
        1,
        """select
    form,
    count(*) filter (where violations > 0) as statements_violated,
    count(*) as statements
from theory_violations
where kind = 'instance'
group by form
order by form""",
    ),
    "published": Headline(
        0,
        """select
    count(*) filter (where verdict = 'agrees') as agrees,
    count(*) filter (where verdict = 'differs') as differs,
    count(*) filter (where verdict = 'undecided') as undecided,
    count(*) filter (where verdict = 'not comparable') as not_comparable
from published_vs_measured""",
    ),
    "rows": Headline(
        0,
        """select
    (select count(*) from geometry) as geometry,
    (select count(*) from spectra) as spectra,
    (select count(*) from forecasts) as forecasts,
    (select coalesce(sum(n), 0)::bigint from skipped) as skipped,
    (select count(*) from failures) as failures""",
    ),
}

# File name -> query. The templates in .dvc/plots colour by the column `line`.
PLOTS: dict[str, str] = {
    "error_against_isotropy": """select
    model as line,
    dataset,
    condition,
    isotropy,
    log_nmse
from nmse_against_isotropy
where study = {study}
    and measure = 'zeta_adjusted_corrected'
    and isotropy is not null
    and log_nmse is not null
order by all""",
    "effective_dimension": f"""select
    model || ' ' || stack as line,
    layer,
    median(effective_dimension) as dimension
from effective_dimension
where study = {{dimension}}
    and epsilon = {EPSILON}
    and not normed
    and effective_dimension is not null
group by all
order by all""",
    "rank_by_layer": f"""select
    line,
    layer,
    avg(share) as share
from (
    select distinct model || ' ' || stack as line, dataset, condition, layer, share
    from flow_of_ranks
    where epsilon = {TOLERANCE}
        and not below_noise_floor
        and tokens = 'valued'
)
group by all
order by all""",
    "compression": """select
    base_model || ' ' || method as line,
    attention_ratio,
    any_value(size_ratio) as size_ratio,
    avg(wql_ratio) as wql_ratio
from compression_frontier
where wql_ratio is not null
group by all
order by all""",
}


def headlines(study: str) -> dict[str, Headline]:
    """Return every headline with the study name substituted in its query."""
    return {name: Headline(one.names, filled(Query("", one.sql), study).sql) for name, one in HEADLINES.items()}


def plots(study: str, dimension: str) -> dict[str, str]:
    """Return file under data/plots -> its query.

    study: the study of most plots. dimension: the study for the plot of the effective dimension by layer.
    """
    written = {name: sql.replace("{dimension}", "{study}") for name, sql in PLOTS.items()}
    return {
        name: filled(Query("", sql), dimension if "{dimension}" in PLOTS[name] else study).sql
        for name, sql in written.items()
    }


def nested(columns: Sequence[str], rows: Iterable[Sequence[Any]], names: int) -> dict[str, Any]:
    """Return the rows as nested mappings, keyed by their first `names` columns.

    Null numbers are left out, and so are mappings that are then empty: `dvc metrics diff` reports numbers
    that appear or disappear, but takes null for a changed value.
    """
    found: dict[str, Any] = {}
    for row in rows:
        numbers = {name: value for name, value in zip(columns[names:], row[names:], strict=True) if value is not None}
        at = found
        for name in row[:names]:
            at = at.setdefault(str(name), {})
        at |= numbers
    return _without_empty(found)


def _without_empty(tree: Mapping[str, Any]) -> dict[str, Any]:
    kept = {name: _without_empty(one) if isinstance(one, Mapping) else one for name, one in tree.items()}
    return {name: one for name, one in kept.items() if one != {}}

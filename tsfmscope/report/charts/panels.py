"""Figures of NMSE against isotropy with one panel per domain (Shelim et al. 2025, Figs. 3 and 7).

Studies of the paper's figures show the printed |ζ′|. Other studies show |ζ′ − its null mean|, because the
main correlation of the report uses ζ′ minus its null mean.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from tsfmscope.report import colorscale, panel_letters
from tsfmscope.report.charts import grid
from tsfmscope.report.charts.figures import (
    AXES,
    COLOURS,
    CORRECTED,
    DASHES,
    ERROR_TITLE,
    ISOTROPY_TITLES,
    PRINTED,
    SYMBOLS,
    apply_style,
    escape,
    find_position,
    select_drawable,
    shorten_name,
)

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

# Marker fills of the first, second and third data set or condition, and of all others.
FILLS = ("", "-open", "-open-dot", "-dot")
# The first fills as characters, for as many data sets of a panel as its title names.
GLYPHS = "●○"
NAMED = len(GLYPHS)
# Longest name of a data set in a title, and the part of its end that is kept, in characters.
NAME, TAIL = 22, 15
# Measure -> column of its rank correlation with the error in the data set and condition.
RHO = {CORRECTED: "rho_corrected", PRINTED: "rho_printed"}


class _Point(NamedTuple):
    x: float
    y: float
    dataset: str
    condition: str
    # Number of the data set in its domain, from 1.
    number: int
    # Index into FILLS; larger values take the last fill.
    fill: int


class _Chain(NamedTuple):
    """Points of one model in one panel, in the order in which a line joins them."""

    panel: str
    model: str
    dash: str
    points: tuple[_Point, ...]


def draw_by_domain(
    frame: pd.DataFrame, models: Sequence[str], conditions: Sequence[str], *, of_paper: bool = True
) -> go.Figure:
    """Draw one point per model and data set.

    frame: model, dataset, domain, paper, condition, the measure, nmse; rows that log axes cannot show are
    left out.
    models: the models of the whole page, which determine colours and symbols, so that a model looks the same
    everywhere.
    conditions: in the study's order; with more than one, each has its own dash.
    of_paper: as in `place_points`.

    Dataset 1 of a domain is filled and Dataset 2 open; a line joins the two. The title of a panel names its
    data sets with their ρ, unless a domain has more than NAMED of them: the legend then has their numbers.
    """
    rows = place_points(frame, of_paper=of_paper)
    shown = [name for name in conditions if name in set(rows["condition"])]
    chains = []
    for (panel, model), part in _groups(rows, "model"):
        for dash, condition in zip(itertools.cycle(DASHES), shown):
            points = [_point(row, row["number"] - 1) for row in part if row["condition"] == condition]
            points.sort(key=lambda point: point.number)
            pair = tuple(point for point in points if point.number <= 2)
            single = [(point,) for point in points if point.number > 2]
            chains += [_Chain(panel, model, dash, group) for group in (pair, *single) if group]
    keys = _model_keys(rows, models)
    if not (is_named := _are_named(rows)):
        keys += _number_keys({int(number) for number in rows["number"]})
    if len(shown) > 1:
        keys += [make_dash_key(name, dash) for dash, name in zip(itertools.cycle(DASHES), shown)]
    measure, count = choose_measure(of_paper), frame["model"].nunique()
    titles = {
        str(panel): _title(part, shown, RHO[measure], count) if is_named else str(panel)
        for panel, part in rows.groupby("panel", sort=False)
    }
    return _figure(rows, chains, keys, models, titles, measure)


def _are_named(rows: pd.DataFrame) -> bool:
    """Return whether the panels' titles name the data sets."""
    return int(rows["number"].max()) <= NAMED


def _title(rows: pd.DataFrame, conditions: Sequence[str], column: str, count: int) -> str:
    """Return the title of a panel: its domain, then one line per data set with its mark, name and ρ.

    column: the column with ρ; without it, or where it is missing, there is none. count: number of models; a
    data set with fewer points has their number.
    """
    lines = [str(rows["panel"].iloc[0])]
    for number in sorted(rows["number"].unique().tolist()):
        part, glyph = rows[rows["number"] == number], GLYPHS[number - 1]
        words = [f"{glyph} {shorten_name(str(part['dataset'].iloc[0]), NAME, TAIL)}"]
        found = [part.loc[part["condition"] == name, column].dropna() for name in conditions if column in part]
        if rhos := [f"{round(values.iloc[0], 1) + 0:.1f}".replace("-", "−") for values in found if len(values)]:
            words.append(f"ρ = {' and '.join(rhos)}")
        if len(part) < count * len(conditions):
            words.append(f"n = {len(part)}")
        lines.append(", ".join(words))
    return "\n".join(lines)


def choose_measure(of_paper: bool) -> str:
    """Return the x axis' column: the printed ζ′ for a figure of the paper, else ζ′ minus its null mean."""
    return PRINTED if of_paper else CORRECTED


def place_points(frame: pd.DataFrame, *, of_paper: bool = True) -> pd.DataFrame:
    """Return the drawable rows, sorted by panel, with columns `panel`, `number` and `order`.

    panel: letter and domain. number: of the data set in its domain, from 1. order: position of the panel.
    Letters and numbers are computed from all rows, so that a panel keeps its letter where some points cannot
    be drawn.

    of_paper: whether the study reproduces a figure of the paper; the panels then have the paper's letters.
    """
    return select_drawable(number_datasets(frame, of_paper=of_paper), choose_measure(of_paper))


def number_datasets(frame: pd.DataFrame, *, of_paper: bool = True) -> pd.DataFrame:
    """Return all rows with the columns that `place_points` adds, in its order."""
    named = frame.assign(domain=frame["domain"].fillna("").replace("", panel_letters.NO_DOMAIN))
    letters = panel_letters.assign_letters(named["domain"], of_paper=of_paper)
    domains = dict(zip(named["dataset"], named["domain"], strict=True))
    papers = {d: p if isinstance(p, str) else None for d, p in zip(named["dataset"], named["paper"], strict=True)}
    panel = [f"{letters[domain]} · {domain}" for domain in named["domain"]]
    order = named["domain"].map({domain: position for position, domain in enumerate(letters)})
    rows = named.assign(
        panel=panel, number=named["dataset"].map(panel_letters.assign_numbers(domains, papers)), order=order
    )
    return rows.sort_values(["order", "model", "number", "condition"])


def _groups(rows: pd.DataFrame, *names: str) -> Iterator[tuple[tuple[Any, ...], list[dict[str, Any]]]]:
    """Group the rows by panel and these columns; yield (panel, *values) and the records of each group."""
    records: list[dict[str, Any]] = [{str(k): v for k, v in row.items()} for row in rows.to_dict("records")]
    for key, part in itertools.groupby(records, key=lambda row: ("", *(row[name] for name in ("panel", *names)))):
        yield key[1:], list(part)


def _point(row: Mapping[str, Any], fill: int) -> _Point:
    return _Point(row["isotropy"], row["nmse"], row["dataset"], row["condition"], int(row["number"]), int(fill))


def _figure(
    rows: pd.DataFrame,
    chains: Sequence[_Chain],
    keys: Iterable[go.Scatter],
    models: Sequence[str],
    titles: Mapping[str, str],
    measure: str,
) -> go.Figure:
    import plotly.graph_objects as go

    panels = list(titles)
    traces = list(keys)
    for (panel, model, dash), group in itertools.groupby(chains, key=lambda chain: chain[:3]):
        parts = list(group)
        axes = grid.axis_names(panels.index(panel))
        traces.append(_points(parts, find_position(model, models), dash, AXES[measure]).update(axes))
    figure = apply_style(go.Figure(traces))
    x = grid.make_log_axis(rows["isotropy"], ISOTROPY_TITLES[measure])
    y = grid.make_log_axis(rows["nmse"], ERROR_TITLE)
    return figure.update_layout(grid.lay_out(list(titles.values()), x, y, grid.Shape(narrow=1)))


def _points(chains: Sequence[_Chain], position: int, dash: str, axis: str) -> go.Scatter:
    """Draw the points of one model in one panel; None separates the lines."""
    import plotly.graph_objects as go

    model, colour = chains[0].model, COLOURS[position % len(COLOURS)]
    parted = [point for chain in chains for point in (*chain.points, None)]
    return go.Scatter(
        x=[point and point.x for point in parted],
        y=[point and point.y for point in parted],
        mode="lines+markers",
        legendgroup=escape(model),
        showlegend=False,
        name=escape(model),
        line={"width": 1, "color": colorscale.set_opacity(colour, 0.45), "dash": dash},
        marker=_marker(position, [point.fill if point else 0 for point in parted]),
        customdata=[
            [escape(point.dataset), escape(model), escape(point.condition)] if point else ["", "", ""]
            for point in parted
        ],
        hovertemplate="<b>%{customdata[0]}</b><br>%{customdata[1]} · %{customdata[2]}"
        f"<br>{axis} %{{x:.3g}}<br>NMSE %{{y:.3g}}<extra></extra>",
    )


def _marker(position: int, fills: Sequence[int]) -> dict[str, Any]:
    colour, symbol = COLOURS[position % len(COLOURS)], SYMBOLS[position % len(SYMBOLS)]
    symbols = [f"{symbol}{FILLS[min(fill, len(FILLS) - 1)]}" for fill in fills]
    return {"color": colour, "symbol": symbols, "size": 9, "line": {"width": 1.5, "color": colour}}


def _model_keys(rows: pd.DataFrame, models: Sequence[str]) -> list[go.Scatter]:
    used = set(rows["model"])
    return [_key(name, _marker(at, [0]), group=escape(name)) for at, name in enumerate(models) if name in used]


def _number_keys(numbers: Collection[int]) -> list[go.Scatter]:
    others = [number for number in numbers if number >= len(FILLS)]
    keys = [_fill_key(f"Dataset {number}", number - 1) for number in sorted(numbers) if number < len(FILLS)]
    last = f"Dataset {len(FILLS)}" + (" and more" if max(others, default=0) > len(FILLS) else "")
    return keys + ([_fill_key(last, len(FILLS) - 1)] if others else [])


def _fill_key(name: str, position: int) -> go.Scatter:
    grey = {"color": colorscale.GREY, "line": {"color": colorscale.GREY, "width": 1.5}}
    return _key(name, {**_marker(0, [position]), **grey})


def make_dash_key(name: str, dash: str) -> go.Scatter:
    """Return a legend entry that explains a dash."""
    return _key(name, None, dash=dash)


def _key(name: str, marker: Mapping[str, Any] | None, *, group: str | None = None, dash: str = "solid") -> go.Scatter:
    """Return a trace without points, as an entry of the legend."""
    import plotly.graph_objects as go

    mode, line = "markers" if marker else "lines", {"width": 1.5, "color": colorscale.GREY, "dash": dash}
    return go.Scatter(x=[None], y=[None], mode=mode, name=escape(name), marker=marker, line=line, legendgroup=group)

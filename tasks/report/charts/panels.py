"""Figures of NMSE against isotropy with one panel per domain (Shelim et al. 2025, Figs. 3 and 5 to 8).

Studies of the paper's figures show the printed |ζ′|. Other studies show |ζ′ − its null mean|, because the
main correlation of the report uses ζ′ minus its null mean.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from tsfmscope.tasks.report import colorscale, panel_letters
from tsfmscope.tasks.report.charts import grid
from tsfmscope.tasks.report.charts.figures import (
    AXES,
    COLOURS,
    CORRECTED,
    DASHES,
    PRINTED,
    SYMBOLS,
    apply_style,
    escape,
    select_drawable,
)

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

# Marker fills of the first, second and third data set or condition, and of all others.
FILLS = ("", "-open", "-open-dot", "-dot")
Y = "NMSE"


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

    Dataset 1 of a domain is filled and Dataset 2 open; a line joins the two.
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
    keys = [*_model_keys(rows, models), *_number_keys({int(number) for number in rows["number"]})]
    if len(shown) > 1:
        keys += [make_dash_key(name, dash) for dash, name in zip(itertools.cycle(DASHES), shown)]
    return _figure(rows, chains, keys, models, axis=AXES[choose_measure(of_paper)], arrows=False)


def draw_by_condition(
    frame: pd.DataFrame, models: Sequence[str], conditions: Sequence[str], *, of_paper: bool = True
) -> go.Figure:
    """Draw one point per model, data set and condition, with an arrow from each condition to the next.

    frame, models, of_paper: as in `draw_by_domain`. conditions: in the study's order; the first is filled, the
    second open. A number at the first point gives the number of the data set in its domain.
    """
    rows = place_points(frame, of_paper=of_paper)
    shown = [name for name in conditions if name in set(rows["condition"])]
    chains = []
    for (panel, model, _), part in _groups(rows, "model", "number"):
        points = sorted((_point(row, shown.index(row["condition"])) for row in part), key=lambda point: point.fill)
        chains.append(_Chain(panel, model, "solid", tuple(points)))
    keys = [*_model_keys(rows, models), *(_fill_key(name, position) for position, name in enumerate(shown))]
    return _figure(rows, chains, keys, models, axis=AXES[choose_measure(of_paper)], arrows=True)


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
    named = frame.assign(domain=frame["domain"].fillna("").replace("", panel_letters.NO_DOMAIN))
    letters = panel_letters.assign_letters(named["domain"], of_paper=of_paper)
    domains = dict(zip(named["dataset"], named["domain"], strict=True))
    papers = {d: p if isinstance(p, str) else None for d, p in zip(named["dataset"], named["paper"], strict=True)}
    rows = select_drawable(named, choose_measure(of_paper))
    panel = [f"{letters[domain]} · {domain}" for domain in rows["domain"]]
    order = rows["domain"].map({domain: position for position, domain in enumerate(letters)})
    rows = rows.assign(
        panel=panel, number=rows["dataset"].map(panel_letters.assign_numbers(domains, papers)), order=order
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
    *,
    axis: str,
    arrows: bool,
) -> go.Figure:
    import plotly.graph_objects as go

    titles = rows["panel"].unique().tolist()
    traces = list(keys)
    for (panel, model, dash), group in itertools.groupby(chains, key=lambda chain: chain[:3]):
        parts = list(group)
        axes = grid.axis_names(titles.index(panel))
        traces.append(_points(parts, models.index(model), dash, axis=axis, numbered=arrows).update(axes))
        if arrows and any(len(chain.points) > 1 for chain in parts):
            traces.append(_arrows(parts, models.index(model)).update(axes))
    figure = apply_style(go.Figure(traces))
    return figure.update_layout(
        grid.lay_out(titles, grid.make_log_axis(rows["isotropy"], axis), grid.make_log_axis(rows["nmse"], Y))
    )


def _points(chains: Sequence[_Chain], position: int, dash: str, *, axis: str, numbered: bool) -> go.Scatter:
    """Draw the points of one model in one panel; None separates the lines."""
    import plotly.graph_objects as go

    model, colour = chains[0].model, COLOURS[position % len(COLOURS)]
    parted = [point for chain in chains for point in (*chain.points, None)]
    first = {chain.points[0] for chain in chains}
    return go.Scatter(
        x=[point and point.x for point in parted],
        y=[point and point.y for point in parted],
        mode="lines+markers+text" if numbered else "lines+markers",
        text=[str(point.number) if point in first and point else "" for point in parted] if numbered else None,
        textposition="top center",
        textfont={"size": 10},
        cliponaxis=False,
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


def _arrows(chains: Sequence[_Chain], position: int) -> go.Scatter:
    """Draw an arrow head in the middle (on log axes) of every step from one condition to the next."""
    import plotly.graph_objects as go

    x: list[float | None] = []
    y: list[float | None] = []
    for chain in chains:
        for start, end in itertools.pairwise(chain.points):
            x += [start.x, math.sqrt(start.x * end.x), None]
            y += [start.y, math.sqrt(start.y * end.y), None]
    colour = COLOURS[position % len(COLOURS)]
    return go.Scatter(
        x=x,
        y=y,
        mode="markers",
        name=escape(chains[0].model),
        marker={"symbol": "arrow", "angleref": "previous", "size": [0, 9, 0] * (len(x) // 3), "color": colour},
        legendgroup=escape(chains[0].model),
        showlegend=False,
        hoverinfo="skip",
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

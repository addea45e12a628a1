"""Layouts of Plotly figures with panels in rows and columns, for a wide and a narrow page."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tsfmscope.report.charts.figures import escape
from tsfmscope.report.colorscale import GREY, format_power

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

# Panels side by side on a wide page and on a narrow one, such as a phone.
COLUMNS, NARROW_COLUMNS = 3, 2
# Heights in pixels: one panel, the gap between two, the top margin (legend and titles), the bottom
# margin (axis).
ROW, GAP, HEAD, FOOT = 175, 46, 92, 60
# Gap between columns, as a share of the width.
BETWEEN = 0.05
# Pixels between the first row's top and the legend, which hold the panels' titles; pixels of each
# further title line.
LEGEND, SECOND = 26, 14
# Ticks of ratios whose ends differ by less than NEAR_RATIOS times, and of others.
NEAR_RATIOS = 2.5
FINE = (0.6, 0.7, 0.8, 0.9, 1, 1.1, 1.2, 1.3, 1.5, 1.7)
COARSE = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 3, 5, 10, 20, 50)


class Shape(NamedTuple):
    """Arrangement of the panels of a figure.

    columns, narrow: panels side by side on a wide page and on a narrow one.
    row: height of a panel in pixels.
    shared: whether all panels share their ranges, so that only the outer ones are labelled.
    """

    columns: int = COLUMNS
    narrow: int = NARROW_COLUMNS
    row: int = ROW
    shared: bool = True


SHARED = Shape()


def axis_names(position: int) -> dict[str, str]:
    """Return the axes, by Plotly's names, for the traces of the panel at this index."""
    number = "" if position == 0 else str(position + 1)
    return {"xaxis": f"x{number}", "yaxis": f"y{number}"}


def lay_out(titles: Sequence[str], x: Mapping[str, Any], y: Mapping[str, Any], shape: Shape = SHARED) -> dict[str, Any]:
    """Return axes, titles and heights of a figure with one panel per title.

    titles: one per panel. The first line of a title is bold; a line break starts a further line.
    x, y: settings of every axis, with `title`.

    `meta["narrow"]` contains the settings that page.js replaces on a narrow page.
    """
    lines = 1 + max((text.count("\n") for text in titles), default=0)
    above = LEGEND + SECOND * (lines - 1)
    wide = _grid(len(titles), shape, x, y, lines)
    legend = {"y": 1 + above / (wide["height"] - HEAD - FOOT), "itemsizing": "constant"}
    narrow = _grid(len(titles), shape._replace(columns=shape.narrow), x, y, lines)
    narrow["legend"] = {"y": 1 + above / (narrow["height"] - HEAD - FOOT)}
    annotations = [_title(position, text) for position, text in enumerate(titles)]
    return {**wide, "legend": legend, "annotations": annotations, "meta": {"narrow": narrow}}


def change_axes(layout: Mapping[str, Any], axes: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return the layout with additional settings for some axes (name -> settings), for both widths."""
    out, narrow = (
        {**where, **{name: {**where[name], **more} for name, more in axes.items()}}
        for where in (layout, layout["meta"]["narrow"])
    )
    return {**out, "meta": {"narrow": narrow}}


def change_margins(layout: Mapping[str, Any], **sides: int) -> dict[str, Any]:
    """Return the layout with other margins in pixels (left, right), for both widths."""
    named = {side[0]: pixels for side, pixels in sides.items()}
    out, narrow = ({**page, "margin": {**page["margin"], **named}} for page in (layout, layout["meta"]["narrow"]))
    return {**out, "meta": {"narrow": narrow}}


def remove_legend(layout: Mapping[str, Any], *, foot: int = FOOT, left: int = 64, right: int = 16) -> dict[str, Any]:
    """Return the layout without space for a legend; foot, left, right: margins in pixels."""
    top = LEGEND + SECOND + 6
    margin, less = {"l": left, "r": right, "t": top, "b": foot}, HEAD + FOOT - top - foot
    out = [{**page, "margin": margin, "height": page["height"] - less} for page in (layout, layout["meta"]["narrow"])]
    return {**out[0], "meta": {"narrow": out[1]}}


def make_axis(title: str, **more: Any) -> dict[str, Any]:
    """Return a panel's axis with small labels and a close title; more: further settings."""
    return {"tickfont": {"size": 10}, "title": {"text": title, "standoff": 4, "font": {"size": 12}}, **more}


def make_bare_axis(**more: Any) -> dict[str, Any]:
    """Return an axis without labels, ticks and grid, for plots whose coordinates have no meaning."""
    return make_axis("", showgrid=False, ticks="", **more)


def make_log_axis(values: pd.Series, title: str) -> dict[str, Any]:
    """Return a logarithmic axis that covers all values, with about four labels. values: positive."""
    out = make_axis(title, type="log", exponentformat="power")
    if not len(values):
        return out
    low, high = float(np.log10(values.min())), float(np.log10(values.max()))
    room = max(0.08 * (high - low), 0.08)
    step = math.ceil((high - low + 2 * room) / 4)
    ticks = {"dtick": step, "tick0": 0} if high - low > 1 else {"nticks": 4}
    return {**out, "range": [round(low - room, 3), round(high + room, 3)], **ticks}


def make_fixed_log_axis(
    title: str, limits: tuple[float, float], ticks: Sequence[float] | None = None
) -> dict[str, Any]:
    """Return a logarithmic axis with limits (log10) and ticks; by default powers of ten, or 1, 2, 5 if short."""
    low, high = limits
    shown = list(ticks) if ticks else []
    if not shown:
        step = max(1, math.ceil((high - low) / 5))
        firsts = (1, 2, 5) if high - low < 1.5 else (1,)
        exponents = range(math.floor(low), math.ceil(high) + 1, step)
        shown = [first * 10.0**exponent for exponent in exponents for first in firsts]
        shown = [tick for tick in shown if low <= np.log10(tick) <= high]
    plain = all(0.001 <= tick <= 1000 for tick in shown) or bool(ticks)
    texts = [f"{tick:g}" if plain else format_power(np.log10(tick)) for tick in shown]
    return make_axis(f"{title} (log)", type="log", range=list(limits), tickvals=shown, ticktext=texts)


def choose_ratio_ticks(low: float, high: float) -> list[float]:
    """Return round ticks between two ratios."""
    return [tick for tick in (FINE if high / low < NEAR_RATIOS else COARSE) if low <= tick <= high]


def choose_round_ticks(low: float, high: float, most: int = 4) -> list[float]:
    """Return at most `most` multiples of 1, 2, 2.5 or 5 times a power of ten between two different numbers."""
    exponent = math.floor(math.log10((high - low) / most)) - 1
    steps = (first * 10.0**power for power in itertools.count(exponent) for first in (1, 2, 2.5, 5))
    for step in steps:
        first, last = math.ceil(low / step), math.floor(high / step)
        if last - first < most:
            return [round(step * n, 3 - exponent) for n in range(first, last + 1)]
    raise AssertionError("steps grow without end")


def draw_guide(
    x: Sequence[float | None], y: Sequence[float | None], *, name: str = "", in_legend: bool = False, **style: Any
) -> go.Scatter:
    """Draw a line that a reader cannot point at. style: settings of the line; by default grey, 1 pixel wide."""
    import plotly.graph_objects as go

    line = {"color": GREY, "width": 1, **style}
    return go.Scatter(x=x, y=y, mode="lines", name=name, line=line, hoverinfo="skip", showlegend=in_legend)


def draw_key(name: str, **style: Any) -> go.Scatter:
    """Return an entry of the legend without data. style: settings of the trace, such as mode and marker."""
    import plotly.graph_objects as go

    return go.Scatter(x=[None], y=[None], name=name, **style)


def _grid(count: int, shape: Shape, x: Mapping[str, Any], y: Mapping[str, Any], lines: int) -> dict[str, Any]:
    """Return axes, height and margins of `count` panels, filled row by row.

    Axis titles stand at the left and at the bottom only; so do the labels of shared axes. lines: number of
    lines of the panels' titles; the gap between rows grows with them, more where every axis has labels.
    """
    columns = max(1, min(shape.columns, count))
    rows = max(1, -(-count // columns))
    gap = max(GAP, LEGEND + SECOND * (lines - 1) + 6) if shape.shared else GAP + SECOND * lines
    inner = rows * shape.row + (rows - 1) * gap
    out: dict[str, Any] = {"height": inner + HEAD + FOOT, "margin": {"l": 64, "r": 16, "t": HEAD, "b": FOOT}}
    wide = (1 - BETWEEN * (columns - 1)) / columns
    for position in range(count):
        row, column = divmod(position, columns)
        left, top = column * (wide + BETWEEN), 1 - row * (shape.row + gap) / inner
        names, lowest, first = axis_names(position), position + columns >= count, column == 0
        shared = {name: {"matches": name} if position and shape.shared else {} for name in "xy"}
        out[names["xaxis"].replace("x", "xaxis")] = {
            **_labelled(x, lowest, lowest or not shape.shared),
            "domain": _clipped(left, left + wide),
            "anchor": names["yaxis"],
            **shared["x"],
        }
        out[names["yaxis"].replace("y", "yaxis")] = {
            **_labelled(y, first, first or not shape.shared),
            "domain": _clipped(top - shape.row / inner, top),
            "anchor": names["xaxis"],
            **shared["y"],
        }
    return out


def _labelled(axis: Mapping[str, Any], titled: bool, labelled: bool) -> dict[str, Any]:
    text = axis["title"]["text"] if titled else ""
    labelled = labelled and axis.get("ticks") != ""
    return {**axis, "showticklabels": labelled, "title": {**axis["title"], "text": text}}


def _clipped(low: float, high: float) -> list[float]:
    return [round(max(0.0, low), 4), round(min(1.0, high), 4)]


def _title(position: int, text: str) -> dict[str, Any]:
    names = axis_names(position)
    where = {"xref": f"{names['xaxis']} domain", "yref": f"{names['yaxis']} domain", "x": 0, "y": 1}
    head, *more = (escape(line) for line in text.split("\n"))
    text = "<br>".join([f"<b>{head}</b>", *more])
    return {**where, "text": text, "showarrow": False, "xanchor": "left", "yanchor": "bottom", "align": "left"}

"""Panels in rows and columns: the axes of a Plotly figure whose panels share their ranges, at two widths."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tasks.report.figures import escape

if TYPE_CHECKING:
    import pandas as pd

COLUMNS, NARROW_COLUMNS = 3, 2  # panels side by side, and on a phone
ROW, GAP, HEAD, FOOT = 175, 46, 92, 60  # heights in pixels: a panel, between two, legend and title, axis
BETWEEN = 0.05  # of the width, between columns
LEGEND, SECOND = 26, 14  # pixels from the first row's top to the legend, for the panels' titles; their second lines


class Shape(NamedTuple):
    """Panels side by side, and on a phone; a panel's height in pixels; whether all have the same ranges and labels."""

    columns: int = COLUMNS
    narrow: int = NARROW_COLUMNS
    row: int = ROW
    shared: bool = True


SHARED = Shape()


def axes(place: int) -> dict[str, str]:
    """The axes that a trace of the panel at a place is drawn on, as Plotly names them."""
    number = "" if place == 0 else str(place + 1)
    return {"xaxis": f"x{number}", "yaxis": f"y{number}"}


def layout(titles: Sequence[str], x: Mapping[str, Any], y: Mapping[str, Any], shape: Shape = SHARED) -> dict[str, Any]:
    """Axes, titles and heights of a figure with a panel a title; x and y: what every axis has, `title` too.

    A title of two lines has a line break. `meta["narrow"]` holds what a narrow page changes; see page.js.
    """
    lines = 1 + max((text.count("\n") for text in titles), default=0)
    above = LEGEND + SECOND * (lines - 1)
    wide = _grid(len(titles), shape, x, y, lines)
    legend = {"y": 1 + above / (wide["height"] - HEAD - FOOT), "itemsizing": "constant"}
    narrow = _grid(len(titles), shape._replace(columns=shape.narrow), x, y, lines)
    narrow["legend"] = {"y": 1 + above / (narrow["height"] - HEAD - FOOT)}
    annotations = [_title(place, text) for place, text in enumerate(titles)]
    return {**wide, "legend": legend, "annotations": annotations, "meta": {"narrow": narrow}}


def changed(laid: Mapping[str, Any], axes: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """The layout with more said of some of its axes, narrow or not."""
    out, narrow = (
        {**where, **{name: {**where[name], **more} for name, more in axes.items()}}
        for where in (laid, laid["meta"]["narrow"])
    )
    return {**out, "meta": {"narrow": narrow}}


def bare_head(laid: Mapping[str, Any], *, foot: int = FOOT, left: int = 64, right: int = 16) -> dict[str, Any]:
    """The layout without room for a legend, and with these margins in pixels below and at the sides."""
    top = LEGEND + SECOND + 6
    margin, less = {"l": left, "r": right, "t": top, "b": foot}, HEAD + FOOT - top - foot
    out = [{**one, "margin": margin, "height": one["height"] - less} for one in (laid, laid["meta"]["narrow"])]
    return {**out[0], "meta": {"narrow": out[1]}}


def tight(laid: Mapping[str, Any], *, right: int = 16) -> dict[str, Any]:
    """The layout without room for a legend, and for labels at the left and below; right: pixels of that margin."""
    return bare_head(laid, foot=24, left=24, right=right)


def axis(title: str, **more: Any) -> dict[str, Any]:
    """A panel's axis: small labels, its title close."""
    return {"tickfont": {"size": 10}, "title": {"text": title, "standoff": 4, "font": {"size": 12}}, **more}


def bare(**more: Any) -> dict[str, Any]:
    """An axis without labels, ticks and grid, of pictures whose coordinates nobody reads."""
    return axis("", showgrid=False, ticks="", **more)


def log_axis(values: pd.Series, title: str) -> dict[str, Any]:
    """A logarithmic axis that holds all values, with about four labels."""
    out = axis(title, type="log", exponentformat="power")
    if not len(values):
        return out
    low, high = float(np.log10(values.min())), float(np.log10(values.max()))
    room = max(0.08 * (high - low), 0.08)
    step = math.ceil((high - low + 2 * room) / 4)
    ticks = {"dtick": step, "tick0": 0} if high - low > 1 else {"nticks": 4}
    return {**out, "range": [round(low - room, 3), round(high + room, 3)], **ticks}


def _grid(count: int, shape: Shape, x: Mapping[str, Any], y: Mapping[str, Any], lines: int) -> dict[str, Any]:
    """Axes in rows of columns; titles stand at the left and below only, and so do labels of shared axes.

    lines: of the panels' titles; between rows whose axes all have labels there is room for both.
    """
    columns = max(1, min(shape.columns, count))
    rows = max(1, -(-count // columns))
    gap = GAP if shape.shared else GAP + SECOND * lines
    inner = rows * shape.row + (rows - 1) * gap
    out: dict[str, Any] = {"height": inner + HEAD + FOOT, "margin": {"l": 64, "r": 16, "t": HEAD, "b": FOOT}}
    wide = (1 - BETWEEN * (columns - 1)) / columns
    for place in range(count):
        row, column = divmod(place, columns)
        left, top = column * (wide + BETWEEN), 1 - row * (shape.row + gap) / inner
        names, lowest, first = axes(place), place + columns >= count, column == 0
        shared = {name: {"matches": name} if place and shape.shared else {} for name in "xy"}
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


def _title(place: int, text: str) -> dict[str, Any]:
    names = axes(place)
    where = {"xref": f"{names['xaxis']} domain", "yref": f"{names['yaxis']} domain", "x": 0, "y": 1}
    head, *more = (escape(line) for line in text.split("\n"))
    text = "<br>".join([f"<b>{head}</b>", *more])
    return {**where, "text": text, "showarrow": False, "xanchor": "left", "yanchor": "bottom", "align": "left"}

"""Panels in rows and columns: the axes of a Plotly figure whose panels share their ranges, at two widths."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tasks.report.figures import escape

if TYPE_CHECKING:
    import pandas as pd

COLUMNS, NARROW_COLUMNS = 3, 2  # panels side by side, and on a phone
ROW, GAP, HEAD, FOOT = 175, 46, 92, 60  # heights in pixels: a panel, between two, legend and title, axis
BETWEEN = 0.05  # of the width, between columns
LEGEND = 26  # pixels from the first row's top to the legend, for the panels' titles


def axes(place: int) -> dict[str, str]:
    """The axes that a trace of the panel at a place is drawn on, as Plotly names them."""
    number = "" if place == 0 else str(place + 1)
    return {"xaxis": f"x{number}", "yaxis": f"y{number}"}


def layout(titles: Sequence[str], x: Mapping[str, Any], y: Mapping[str, Any]) -> dict[str, Any]:
    """Axes, titles and heights of a figure with a panel a title; x and y: what every axis has, `title` too.

    `meta["narrow"]` holds what a narrow page changes; see page.js.
    """
    wide = _grid(len(titles), COLUMNS, x, y)
    legend = {"y": 1 + LEGEND / (wide["height"] - HEAD - FOOT), "itemsizing": "constant"}
    narrow = _grid(len(titles), NARROW_COLUMNS, x, y)
    narrow["legend"] = {"y": 1 + LEGEND / (narrow["height"] - HEAD - FOOT)}
    annotations = [_title(place, text) for place, text in enumerate(titles)]
    return {**wide, "legend": legend, "annotations": annotations, "meta": {"narrow": narrow}}


def log_axis(values: pd.Series, title: str) -> dict[str, Any]:
    """A logarithmic axis that holds all values, with about four labels."""
    out: dict[str, Any] = {"type": "log", "exponentformat": "power", "tickfont": {"size": 10}}
    out["title"] = {"text": title, "standoff": 4, "font": {"size": 12}}
    if not len(values):
        return out
    low, high = float(np.log10(values.min())), float(np.log10(values.max()))
    room = max(0.08 * (high - low), 0.08)
    step = math.ceil((high - low + 2 * room) / 4)
    ticks = {"dtick": step, "tick0": 0} if high - low > 1 else {"nticks": 4}
    return {**out, "range": [round(low - room, 3), round(high + room, 3)], **ticks}


def _grid(count: int, columns: int, x: Mapping[str, Any], y: Mapping[str, Any]) -> dict[str, Any]:
    """Axes in rows of `columns`; tick labels and titles stand at the left and below only."""
    columns = max(1, min(columns, count))
    rows = max(1, -(-count // columns))
    inner = rows * ROW + (rows - 1) * GAP
    out: dict[str, Any] = {"height": inner + HEAD + FOOT, "margin": {"l": 64, "r": 16, "t": HEAD, "b": FOOT}}
    wide = (1 - BETWEEN * (columns - 1)) / columns
    for place in range(count):
        row, column = divmod(place, columns)
        left, top = column * (wide + BETWEEN), 1 - row * (ROW + GAP) / inner
        names, lowest, first = axes(place), place + columns >= count, column == 0
        shared = {name: {"matches": name} if place else {} for name in "xy"}
        out[names["xaxis"].replace("x", "xaxis")] = {
            **_labelled(x, lowest),
            "domain": _clipped(left, left + wide),
            "anchor": names["yaxis"],
            **shared["x"],
        }
        out[names["yaxis"].replace("y", "yaxis")] = {
            **_labelled(y, first),
            "domain": _clipped(top - ROW / inner, top),
            "anchor": names["xaxis"],
            **shared["y"],
        }
    return out


def _labelled(axis: Mapping[str, Any], labelled: bool) -> dict[str, Any]:
    text = axis["title"]["text"] if labelled else ""
    return {**axis, "showticklabels": labelled, "title": {**axis["title"], "text": text}}


def _clipped(low: float, high: float) -> list[float]:
    return [round(max(0.0, low), 4), round(min(1.0, high), 4)]


def _title(place: int, text: str) -> dict[str, Any]:
    names = axes(place)
    where = {"xref": f"{names['xaxis']} domain", "yref": f"{names['yaxis']} domain", "x": 0, "y": 1}
    return {**where, "text": f"<b>{escape(text)}</b>", "showarrow": False, "xanchor": "left", "yanchor": "bottom"}

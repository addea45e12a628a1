"""Picture of forecasts: history, median and 80 % interval of a few series."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import altair as alt
import numpy as np
import pandas as pd

from tsfmscope.report import style
from tsfmscope.report.style import COLOURS, INK, Chart

# Largest number of series, and of panels side by side.
PANELS, ACROSS = 6, 2
WIDTH, HEIGHT = 330, 150
# Longest name of a series in its title, in characters.
NAME = 44
HISTORY, MEDIAN, BAND = "history", "median forecast", "80 % interval"


class Panel(NamedTuple):
    """One series: times and values of its last steps, and of its forecast."""

    name: str
    past_times: Any
    past: np.ndarray
    times: Any
    low: Any
    median: Any
    high: Any


def draw_forecasts(panels: Sequence[Panel], title: str) -> Chart:
    """Draw one panel per series, two side by side; times without a zone, as they are written in the table."""
    charts = [_draw(panel, has_legend=position == 0) for position, panel in enumerate(panels)]
    return alt.concat(*charts, columns=ACROSS, title=alt.Title(title, fontSize=13, offset=12)).resolve_legend(
        stroke="shared", fill="shared"
    )


def _draw(panel: Panel, *, has_legend: bool) -> Chart:
    known = np.isfinite(panel.past)
    past = [
        {"at": at, "value": float(value), "line": HISTORY}
        for at, value in zip(_positions(panel.past_times), panel.past, strict=True)
        if np.isfinite(value)
    ]
    ahead = [
        {"at": at, "value": float(middle), "low": float(low), "high": float(high), "line": MEDIAN, "band": BAND}
        for at, middle, low, high in zip(_positions(panel.times), panel.median, panel.low, panel.high, strict=True)
    ]
    # The forecast's line and band begin at the last value, so that there is no gap to bridge with the eye.
    if known.any() and known[-1]:
        last = past[-1]
        ahead.insert(0, {**last, "low": last["value"], "high": last["value"], "line": MEDIAN, "band": BAND})
    is_time = isinstance(ahead[-1]["at"], str)
    x = alt.X("at:T" if is_time else "at:Q", title=None if is_time else "step", axis=alt.Axis(grid=False, tickCount=5))
    y = alt.Y("value:Q", title=None, scale=alt.Scale(zero=False))
    colours = {HISTORY: INK, MEDIAN: COLOURS[0]}
    fill = alt.Fill("band:N", scale=style.map_values({BAND: COLOURS[0]}), legend=style.make_legend([BAND]))
    band = (
        alt.Chart(alt.InlineData(ahead))
        .mark_area(opacity=0.25, aria=False)
        .encode(x=x, y=alt.Y("low:Q", title=None, scale=alt.Scale(zero=False)), y2="high:Q", fill=fill)
    )
    lines = (
        alt.Chart(alt.InlineData(past + ahead))
        .mark_line(strokeWidth=1.6)
        .encode(x=x, y=y, stroke=style.encode_stroke("line", colours))
    )
    return alt.layer(band, lines).properties(
        width=WIDTH, height=HEIGHT, title=style.shorten_name(panel.name, NAME, NAME // 2)
    )


def _positions(times: Any) -> list[Any]:
    """Return times as text in local time, and numbers of steps as they are."""
    if isinstance(times, pd.DatetimeIndex | pd.Series) and not pd.api.types.is_numeric_dtype(times):
        return [time.strftime("%Y-%m-%dT%H:%M:%S") for time in pd.DatetimeIndex(times)]
    return [int(step) for step in times]

"""Accuracy of compressed models and baselines against the time of a forecast."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from tsfmscope.report import colorscale
from tsfmscope.report.charts import grid
from tsfmscope.report.charts.compression import METHODS, READ, choose_colour, choose_symbol
from tsfmscope.report.charts.figures import SYMBOLS, apply_style, escape
from tsfmscope.report.charts.labels import Frame, Label, draw_labels, sample_line, surround

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

BASELINES = ("seasonal-naive", "auto-ets", "auto-theta", "auto-arima")
FRONTIER = "Pareto front"
# Size in pixels of the panels in the PNG, for labels: all panels of a row, height of one panel.
WIDTH, HEIGHT = 780, 300
# Pixels of a label right of the points and above them.
ROOM, ROOM_ABOVE = 70, 30


def draw_frontier(frame: pd.DataFrame) -> go.Figure:
    """Draw WQL against seconds per series, both relative to the dense model; one panel per dense model.

    frame: columns of `plots.frontier.COLUMNS`; rows without positive ratios are left out. Both axes are
    logarithmic, thin lines mark the dense model. The colour shows the method, the label the share of the
    attention that is left. Baselines are open grey marks with their names. A dotted line joins the Pareto
    front: no other model is both faster and more accurate.
    """
    import plotly.graph_objects as go

    rows = frame[(frame["time_ratio"] > 0) & (frame["wql_ratio"] > 0)]
    bases = sorted(rows["base"].unique())
    columns = min(2, max(1, len(bases)))
    panel = (WIDTH / columns, HEIGHT)
    x_range, y_range = _padded(rows["time_ratio"], panel[0], ROOM), _padded(rows["wql_ratio"], panel[1], ROOM_ABOVE)
    figure, shown = go.Figure(), set[str]()
    for position, base in enumerate(bases):
        part, axes = rows[rows["base"] == base], grid.axis_names(position)
        figure.add_traces(
            [
                grid.draw_guide([1, 1], _powers(y_range)).update(axes),
                grid.draw_guide(_powers(x_range), [1, 1]).update(axes),
            ]
        )
        best = part[part["on_frontier"]].sort_values("time_ratio")
        front = best["time_ratio"].tolist(), best["wql_ratio"].tolist()
        line = grid.draw_guide(*front, name=FRONTIER, in_legend=position == 0, width=1.5, dash="dot")
        figure.add_trace(line.update(axes))
    # The outer loop is over groups, so that the legend lists them in their order.
    for name, points in _groups(rows):
        for position, base in enumerate(bases):
            if len(part := points[points["base"] == base]):
                in_legend = name not in shown and part["kind"].iloc[0] not in ("baseline", "dense")
                figure.add_trace(_marks(name, part, in_legend=in_legend).update(grid.axis_names(position)))
                shown.add(name)
    for position, base in enumerate(bases):
        part = rows[rows["base"] == base]
        where = Frame(x_range, y_range, *panel, log_x=True, log_y=True)
        best = part[part["on_frontier"]].sort_values("time_ratio")
        obstacles = np.concatenate(
            [
                surround(where.to_pixels(part["time_ratio"].tolist(), part["wql_ratio"].tolist())),
                sample_line(best["time_ratio"].tolist(), best["wql_ratio"].tolist(), where),
                sample_line([1, 1], _powers(y_range), where),
                sample_line(_powers(x_range), [1, 1], where),
            ]
        )
        labels = [_label(row) for row in part.to_dict("records")]
        figure.add_traces([trace.update(grid.axis_names(position)) for trace in draw_labels(labels, obstacles, where)])
    x = grid.make_fixed_log_axis("time per series ÷ dense", x_range)
    y = grid.make_fixed_log_axis("forecast error, WQL ÷ dense", y_range)
    shape = grid.Shape(columns=columns, narrow=1, row=HEIGHT)
    return apply_style(figure).update_layout(**grid.lay_out([str(base) for base in bases], x, y, shape))


def _label(row: Mapping[Any, Any]) -> Label:
    """Return the label of a point: a baseline's or precision's name, or the share of the attention that is left."""
    kind, share = row["kind"], row["attention_ratio"]
    if kind in ("baseline", READ):
        text = str(row["model"])
    else:
        text = "dense" if kind == "dense" else f"{share:.3g}" if share == share and share is not None else ""
    colour = colorscale.GREY if kind == "baseline" else choose_colour(kind)
    return Label(escape(text), float(row["time_ratio"]), float(row["wql_ratio"]), colour)


def _groups(part: pd.DataFrame) -> list[tuple[str, pd.DataFrame]]:
    """Return the non-empty groups of rows by name: other precision, methods, baselines, dense."""
    groups = [(name, part[part["kind"] == name]) for name in (READ, *METHODS)]
    local = part[part["kind"] == "baseline"]
    order = [*BASELINES, *sorted(set(local["model"]) - set(BASELINES))]
    groups += [(name, local[local["model"] == name]) for name in order]
    # The dense model is drawn last, on top of the others.
    groups.append(("dense", part[part["kind"] == "dense"]))
    return [(name, points) for name, points in groups if len(points)]


def _marks(name: str, points: pd.DataFrame, *, in_legend: bool) -> go.Scatter:
    import plotly.graph_objects as go

    local = points["kind"].iloc[0] == "baseline"
    colour = colorscale.GREY if local else choose_colour(name)
    position = BASELINES.index(name) if name in BASELINES else 0
    whole = "star" if name == "dense" else "star-open" if name == READ else choose_symbol(name)
    symbol = f"{SYMBOLS[1 + position]}-open" if local else whole
    sizes = [_size(share, name) for share in points["attention_ratio"]]
    return go.Scatter(
        x=points["time_ratio"].tolist(),
        y=points["wql_ratio"].tolist(),
        mode="markers",
        name=escape(name),
        showlegend=in_legend,
        legendgroup=escape(name),
        marker={
            "color": colour,
            "symbol": symbol,
            "size": sizes,
            "line": {"width": 1.5, "color": colour},
            "opacity": 1,
        },
        customdata=[_describe_mark(row) for row in points.to_dict("records")],
        hovertemplate="<b>%{customdata}</b><br>time %{x:.3g}<br>WQL %{y:.4g}<extra></extra>",
    )


def _describe_mark(row: Mapping[Any, Any]) -> str:
    share = row["attention_ratio"]
    left = f", {share:.0%} of the attention" if share == share and share is not None else ""
    return escape(f"{row['model']}{left}, {row['seconds']:.3g} s per series")


def _size(share: float | None, name: str) -> float:
    """Return the size of a mark in pixels, which grows with the share of the attention that is left."""
    if share is None or share != share:
        return 15.0 if name in ("dense", READ) else 9.0
    return float(round(5 + 8 * min(share, 1.0) ** 0.5, 1))


def _padded(values: pd.Series, pixels: float, room: float) -> tuple[float, float]:
    """Return the range of the values and of 1 as log10, with `room` pixels at both ends."""
    low, high = (float(np.log10(end)) for end in (min(1.0, values.min()), max(1.0, values.max())))
    span = max(high - low, 0.1)
    more = span * room / (pixels - 2 * room)
    return round(low - more, 3), round(high + more, 3)


def _powers(limits: tuple[float, float]) -> list[float]:
    """Return the values of two decimal exponents."""
    return [float(10.0**end) for end in limits]

"""Forest plot of a certificate: WQL of a small model over that of its base, per task, and the mean."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from tsfmscope.report import colorscale
from tsfmscope.report.charts.figures import COLOURS, apply_style, escape, shorten_name
from tsfmscope.report.charts.forest import FOOT, HEAD, LEGEND, NAME, ROW, TAIL
from tsfmscope.report.charts.grid import (
    choose_ratio_ticks,
    choose_round_ticks,
    draw_guide,
    make_axis,
    make_fixed_log_axis,
)

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

# Position of the mean on the vertical axis; the tasks stand at 1, 2, ... above it.
MEAN = 0
# The axis contains the upper limit if it is less than so many times the largest ratio.
NEAR = 1.3
# Pixels of a character of a task's name.
CHARACTER = 7.4


def draw_certificate(
    rows: pd.DataFrame, *, mean: float, upper: float, margin: float, worst: float, units: str
) -> go.Figure:
    """Draw the sorted ratios of tasks or groups, and below them the geometric mean with its upper limit.

    rows: name, horizon, ratio. units: number and kind of the units of the mean. mean, upper: ratios; an upper limit far
    above all ratios is cut at the edge, and an infinite ratio is drawn there. Lines: 1, the margin of the mean, and the
    limit of each task.
    """
    import plotly.graph_objects as go

    rows = rows.sort_values(["ratio", "name"])
    low, high = _limits([ratio for ratio in (*rows["ratio"], mean, margin, worst) if math.isfinite(ratio)], upper)
    mean, rows = min(mean, high), rows.assign(ratio=rows["ratio"].clip(upper=high))
    top = len(rows) + 0.7
    names = [shorten_name(f"{row.name}, {row.horizon}", NAME, TAIL) for row in rows.itertuples()]
    labels = [f"<b>mean of {units}</b>", *map(escape, names)]
    failed = (rows["ratio"] > worst).tolist()
    figure = go.Figure(
        [
            draw_guide([1, 1], [-0.7, top]),
            draw_guide([low, high], [0.5, 0.5], width=0.5),
            _limit_line(margin, [-0.7, 0.5], f"margin of the mean, {margin:g}", COLOURS[0]),
            _limit_line(worst, [0.5, top], f"limit of a task or group, {worst:g}", COLOURS[1]),
            _marks(rows["ratio"].tolist(), list(range(1, len(rows) + 1)), labels[1:], failed),
            draw_guide([mean, min(upper, high)], [MEAN, MEAN], width=3),
            _mean_mark(mean, upper),
        ]
    )
    inner = ROW * (len(rows) + 1.4)
    return apply_style(figure).update_layout(
        height=HEAD + FOOT + inner,
        legend={"y": 1 + LEGEND / inner},
        margin={"l": 14 + CHARACTER * max(map(len, [*names, f"mean of {units}"])), "r": 14, "t": HEAD, "b": FOOT},
        meta={"one_column": True},
        xaxis=make_fixed_log_axis("WQL, small model / base", (math.log10(low), math.log10(high)), _ticks(low, high)),
        yaxis=make_axis("", range=[-0.7, top], tickvals=list(range(len(labels))), ticktext=labels, showgrid=False),
    )  # fmt: skip


def _limits(ratios: list[float], upper: float) -> tuple[float, float]:
    """Return the ends of an axis for all ratios, 1, and the upper limit if it is near them."""
    near = [upper] if upper < NEAR * max(ratios) else []
    logs = [math.log(ratio) for ratio in (*ratios, *near, 1.0)]
    room = 0.08 * (max(logs) - min(logs))
    return math.exp(min(logs) - room), math.exp(max(logs) + room)


def _ticks(low: float, high: float) -> list[float]:
    """Return about four round ticks; of a wide range, none, for the powers of ten."""
    return choose_round_ticks(low, high) if high / low < 3 else choose_ratio_ticks(low, high) if high / low < 50 else []


def _limit_line(ratio: float, y: list[float], name: str, colour: str) -> go.Scatter:
    return draw_guide([ratio, ratio], y, name=name, in_legend=True, color=colour, dash="dash", width=1.5)


def _marks(ratios: list[float], y: list[int], names: list[str], failed: list[bool]) -> go.Scatter:
    """Draw one mark per task: open if its ratio is above the limit."""
    import plotly.graph_objects as go

    marker: dict[str, Any] = {
        "symbol": ["circle-open" if is_failed else "circle" for is_failed in failed],
        "size": 8,
        "color": colorscale.GREY,
        "line": {"width": 1.5, "color": colorscale.GREY},
    }
    return go.Scatter(
        x=ratios, y=y, mode="markers", name="task", showlegend=False, marker=marker, customdata=names,
        hovertemplate="%{customdata}<br>ratio %{x:.4f}<extra></extra>",
    )  # fmt: skip


def _mean_mark(mean: float, upper: float) -> go.Scatter:
    import plotly.graph_objects as go

    return go.Scatter(
        x=[mean], y=[MEAN], mode="markers", name="mean and its upper 95 % limit", showlegend=True,
        marker={"symbol": "diamond", "size": 13, "color": colorscale.GREY},
        hovertemplate=f"mean {mean:.4f}, upper limit {upper:.4f}<extra></extra>",
    )  # fmt: skip

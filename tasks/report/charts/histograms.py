"""Histograms of singular values, as in Yu et al. 2026, Figs. 10 and 11."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tsfmscope.tasks.report import colorscale
from tsfmscope.tasks.report.charts import grid
from tsfmscope.tasks.report.charts.figures import apply_style

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

# Number of decades of relative singular values that are shown.
DECADES = 5
# Width of a bar in decades; see histogram.sql and snapshots.sql in store/sql/report/study.
WIDTH = 0.2
# Opacity of each decade, fainter from 1e-5 to 1.
OPACITY = (1.0, 0.8, 0.62, 0.45, 0.3)
MATRICES = {"q": "queries", "mlp_in": "MLP"}
# Largest number of training steps that are shown, without the finished model.
STEPS = 5


def draw_histogram(frame: pd.DataFrame, colour: str) -> go.Figure:
    """Draw histograms of one model's relative singular values on a log axis, one panel per matrix and layer.

    frame: columns of `plots.histogram.COLUMNS`, of one model. Panels are in row-major order: queries, then
    the first matrix of the MLP. The MLP starts a new row if the number of columns divides the number of
    layers. Each of the five decades has its own shade of the colour.
    """
    layers = sorted(int(layer) for layer in frame["layer"].unique())
    matrices = [name for name in MATRICES if name in set(frame["matrix"])]
    cells = [(matrix, layer) for matrix in matrices for layer in layers]
    parts = [frame[(frame["matrix"] == matrix) & (frame["layer"] == layer)] for matrix, layer in cells]
    titles = [f"{MATRICES[matrix]}, layer {layer}" for matrix, layer in cells]
    columns = _columns(len(layers))
    shades = [colorscale.set_opacity(colour, opacity) for opacity in OPACITY]
    ticks = list(range(-DECADES, 1))
    figure = _figure(parts, titles, columns, "σⱼ / σ₁", ticks, lambda low: shades[_decade(low)])
    return _share_ranges(figure, parts, [matrix for matrix, _ in cells])


def draw_snapshots(frame: pd.DataFrame, colour: str) -> go.Figure:
    """Draw histograms of the singular values of one model's query projections during training.

    frame: columns of `plots.snapshots.COLUMNS`, of one model. There is one row per training step, at most
    STEPS and then the finished model, and one column per layer. The values are absolute.
    """
    layers = sorted(int(layer) for layer in frame["layer"].unique())
    steps = select_steps(frame)
    cells = [(step, layer) for step in steps for layer in layers]
    parts = [
        frame[(frame["step"].isna() if step is None else frame["step"] == step) & (frame["layer"] == layer)]
        for step, layer in cells
    ]
    named = {step: "trained" if step is None else f"step {step:,}" for step in steps}
    titles = [f"{named[step]}, layer {layer}" for step, layer in cells]
    seen = frame[frame["step"].isna() | frame["step"].isin([step for step in steps if step is not None])]
    low, high = math.floor(float(seen["low"].quantile(0.02))), math.ceil(float(seen["low"].max()) + WIDTH)
    figure = _figure(parts, titles, len(layers), "σⱼ", list(range(low, high + 1)), lambda low: colour)
    return _share_ranges(figure, parts, [0] * len(parts))


def select_steps(frame: pd.DataFrame) -> list[int | None]:
    """Return at most STEPS steps, evenly spaced in the list of snapshots, first and last included.

    They are followed by None, which stands for the finished model, if the frame contains it.
    """
    steps = sorted(int(step) for step in frame["step"].dropna().unique())
    indices = sorted(set(np.linspace(0, len(steps) - 1, min(STEPS, len(steps))).round().astype(int).tolist()))
    finished: list[int | None] = [None] if frame["step"].isna().any() else []
    return [steps[index] for index in indices] + finished


def _columns(layers: int) -> int:
    """Return the panels per row: 6, 4, 5 or 3 if that fills all rows, else at most 4."""
    return next((count for count in (6, 4, 5, 3) if layers % count == 0), min(layers, 4))


def _figure(
    parts: list[pd.DataFrame], titles: list[str], columns: int, title: str, ticks: list[int], shade: Any
) -> go.Figure:
    import plotly.graph_objects as go

    figure = go.Figure()
    for position, part in enumerate(parts):
        part = part[part["low"] >= ticks[0] - 1e-9]
        low = part["low"].to_numpy(float)
        figure.add_trace(
            go.Bar(
                x=np.round(low + WIDTH / 2, 2),
                y=part["n"].to_numpy(np.int32),
                width=WIDTH,
                marker={"color": [shade(edge) for edge in low], "line": {"width": 0}},
                showlegend=False,
                hovertemplate="10^%{x:.1f}: %{y}<extra></extra>",
                **grid.axis_names(position),
            )
        )
    every = ticks[:: max(1, math.ceil(len(ticks) / 6))]
    labels = {"tickvals": every, "ticktext": [colorscale.format_power(tick) for tick in every]}
    x = grid.make_axis(title, range=[ticks[0], ticks[-1] + 0.1], **labels)
    y = grid.make_axis("count", nticks=4)
    shape = grid.Shape(columns=columns, narrow=min(columns, 3), row=105)
    return apply_style(figure).update_layout(bargap=0, **grid.remove_legend(grid.lay_out(titles, x, y, shape)))


def _share_ranges(figure: go.Figure, parts: list[pd.DataFrame], groups: Sequence[object]) -> go.Figure:
    """Give the panels of a group, such as one matrix, a common y range."""
    highest: dict[object, int] = {}
    for part, group in zip(parts, groups, strict=True):
        highest[group] = max(highest.get(group, 1), int(part["n"].max()) if len(part) else 1)
    layout = figure.layout.to_plotly_json()
    axes = [grid.axis_names(position)["yaxis"].replace("y", "yaxis") for position in range(len(parts))]
    first = {group: axes[groups.index(group)].replace("axis", "") for group in highest}
    ranges = {
        name: {
            "range": [0, 1.08 * highest[group]],
            "matches": None if first[group] == name.replace("axis", "") else first[group],
        }
        for name, group in zip(axes, groups, strict=True)
    }
    return figure.update_layout(**grid.change_axes(layout, ranges))


def _decade(low: float) -> int:
    """Return the index of the decade, from 0 for the smallest of the five below 1; clipped at both ends."""
    return min(max(math.floor(low + 1e-9) + DECADES, 0), DECADES - 1)

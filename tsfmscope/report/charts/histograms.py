"""Cumulative distributions of singular values, the layers overlaid, as in Yu et al. 2026, Figs. 10 and 11.

The paper has histograms, one panel per layer. Layers of some dozen values each are easier to compare as cumulative
distributions in one panel.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tsfmscope.report import colorscale
from tsfmscope.report.charts import grid
from tsfmscope.report.charts.figures import apply_style

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

# Number of decades of relative singular values that are shown.
DECADES = 5
# Width of a bin in decades; see histogram.sql and snapshots.sql in store/sql/report/study.
WIDTH = 0.05
MATRICES = {"q": "query projections", "mlp_in": "first MLP matrices"}
# Largest number of training steps that are shown, without the finished model; of panels per row.
STEPS, COLUMNS = 5, 3
# Largest number of layers in the legend.
NAMED = 6
SHARE = "share of values up to x"


def draw_distributions(frame: pd.DataFrame) -> go.Figure:
    """Draw the distribution of relative singular values: one panel per model and matrix, one line per layer.

    frame: columns of `plots.histogram.COLUMNS`. Each row of panels has one matrix; the layers' colours are in order
    from violet to orange. Values below the shown decades are counted at the left edge.
    """
    models = sorted(str(model) for model in frame["model"].unique())
    matrices = [name for name in MATRICES if name in set(frame["matrix"])]
    groups = [models[at : at + COLUMNS] for at in range(0, len(models), COLUMNS)]
    cells = [(model, matrix) for group in groups for matrix in matrices for model in group]
    parts = [frame[(frame["model"] == model) & (frame["matrix"] == matrix)] for model, matrix in cells]
    titles = [f"{model}\n{MATRICES[matrix]}" for model, matrix in cells]
    ticks = list(range(-DECADES, 1))
    return _draw(parts, titles, min(COLUMNS, len(models)), "singular value ÷ largest (log)", ticks)


def draw_snapshots(frame: pd.DataFrame) -> go.Figure:
    """Draw the distribution of the singular values of one model's query projections during training.

    frame: columns of `plots.snapshots.COLUMNS`, of one model. There is one panel per training step, at most STEPS
    and then the finished model, and one line per layer. The values are absolute.
    """
    steps = select_steps(frame)
    parts = [frame[frame["step"].isna() if step is None else frame["step"] == step] for step in steps]
    titles = ["trained" if step is None else f"step {step:,}" for step in steps]
    lows = np.concatenate([part["low"].to_numpy(float) for part in parts])
    ticks = list(range(math.floor(float(np.quantile(lows, 0.02))), math.ceil(float(lows.max()) + WIDTH) + 1))
    return _draw(parts, titles, min(COLUMNS, len(steps)), "singular value (log)", ticks)


def select_steps(frame: pd.DataFrame) -> list[int | None]:
    """Return at most STEPS steps, evenly spaced in the list of snapshots, first and last included.

    They are followed by None, which stands for the finished model, if the frame contains it.
    """
    steps = sorted(int(step) for step in frame["step"].dropna().unique())
    indices = sorted(set(np.linspace(0, len(steps) - 1, min(STEPS, len(steps))).round().astype(int).tolist()))
    finished: list[int | None] = [None] if frame["step"].isna().any() else []
    return [steps[index] for index in indices] + finished


def accumulate(part: pd.DataFrame, ends: tuple[float, float]) -> tuple[list[float], list[float]]:
    """Return the steps of a cumulative distribution: log10 of the values, and shares.

    part: columns low and n, one row per bin. A step stands at the upper edge of its bin. ends: first and last
    position of the line.
    """
    ordered = part.sort_values("low")
    edges = np.clip((ordered["low"].to_numpy(float) + WIDTH).round(2), *ends)
    shares = np.cumsum(ordered["n"].to_numpy(float)) / float(ordered["n"].sum())
    x = [ends[0], *np.repeat(edges, 2).tolist(), ends[1]]
    y = [0.0, *np.stack([[0.0, *shares[:-1]], shares], axis=1).ravel().round(5).tolist(), 1.0]
    return x, y


def _draw(
    parts: Sequence[pd.DataFrame], titles: Sequence[str], columns: int, x_title: str, ticks: Sequence[int]
) -> go.Figure:
    import plotly.graph_objects as go

    layers = sorted({int(layer) for part in parts for layer in part["layer"]})
    figure = go.Figure(_keys(layers))
    for position, part in enumerate(parts):
        for layer, rows in part.groupby("layer", sort=True):
            x, y = accumulate(rows, (float(ticks[0]), float(ticks[-1])))
            number = int(rows["layer"].iloc[0])
            figure.add_trace(
                go.Scatter(
                    x=x, y=y, mode="lines", name=f"layer {layer}", legendgroup=f"layer {layer}", showlegend=False,
                    line={"width": 1.8, "color": _colour(number, layers)},
                    hovertemplate=f"layer {number}<br>%{{y:.0%}} of values up to 10^%{{x:.2f}}<extra></extra>",
                    **grid.axis_names(position),
                )
            )  # fmt: skip
    every = ticks[:: max(1, math.ceil(len(ticks) / 6))]
    labels: Mapping[str, Any] = {"tickvals": every, "ticktext": [colorscale.format_power(tick) for tick in every]}
    x_axis = grid.make_axis(x_title, range=[ticks[0], ticks[-1] + 0.05], **labels)
    y_axis = grid.make_axis(SHARE, range=[0, 1.03], tickvals=[0, 0.5, 1], ticktext=["0", "0.5", "1"])
    shape = grid.Shape(columns=columns, narrow=1, row=150)
    return apply_style(figure).update_layout(**grid.lay_out(titles, x_axis, y_axis, shape))


def _keys(layers: Sequence[int]) -> list[go.Scatter]:
    """Return the legend: every layer, or NAMED of many, first and last included."""
    import plotly.graph_objects as go

    shown = sorted(set(np.linspace(0, len(layers) - 1, min(NAMED, len(layers))).round().astype(int).tolist()))
    return [
        go.Scatter(
            x=[None], y=[None], mode="lines", name=f"layer {layers[at]}", legendgroup=f"layer {layers[at]}",
            line={"width": 2, "color": _colour(layers[at], layers)},
        )
        for at in shown
    ]  # fmt: skip


def _colour(layer: int, layers: Sequence[int]) -> str:
    return colorscale.interpolate_colour(layers.index(layer), len(layers))

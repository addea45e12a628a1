"""Cumulative distributions of singular values, the layers overlaid, as in Yu et al. 2026, Figs. 10 and 11.

The paper has histograms, one panel per layer. Layers of some dozen values each are easier to compare as cumulative
distributions in one panel.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import altair as alt
import numpy as np

from tsfmscope.report.charts import style
from tsfmscope.report.charts.style import Chart

if TYPE_CHECKING:
    import pandas as pd

# Number of decades of relative singular values that are shown.
DECADES = 5
# Width of a bin in decades; see histogram.sql and snapshots.sql in store/sql/report/study.
WIDTH = 0.05
MATRICES = {"q": "query projections", "mlp_in": "first MLP matrices"}
# Largest number of training steps that are shown, without the finished model; of panels per row.
STEPS, COLUMNS = 5, 3
# Largest number of layers in the legend.
NAMED = 6
HEIGHT = 150


def draw_distributions(frame: pd.DataFrame) -> Chart:
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
    return _draw(parts, titles, min(COLUMNS, len(models)), "singular value ÷ largest (log)", (-DECADES, 0))


def draw_snapshots(frame: pd.DataFrame) -> Chart:
    """Draw the distribution of the singular values of one model's query projections during training.

    frame: columns of `plots.snapshots.COLUMNS`, of one model. There is one panel per training step, at most STEPS
    and then the finished model, and one line per layer. The values are absolute.
    """
    steps = select_steps(frame)
    parts = [frame[frame["step"].isna() if step is None else frame["step"] == step] for step in steps]
    titles = ["trained" if step is None else f"step {step:,}" for step in steps]
    lows = np.concatenate([part["low"].to_numpy(float) for part in parts])
    ends = math.floor(float(np.quantile(lows, 0.02))), math.ceil(float(lows.max()) + WIDTH)
    return _draw(parts, titles, min(COLUMNS, len(steps)), "singular value (log)", ends)


def select_steps(frame: pd.DataFrame) -> list[int | None]:
    """Return at most STEPS steps, evenly spaced in the list of snapshots, first and last included.

    They are followed by None, which stands for the finished model, if the frame contains it.
    """
    steps = sorted(int(step) for step in frame["step"].dropna().unique())
    indices = sorted(set(np.linspace(0, len(steps) - 1, min(STEPS, len(steps))).round().astype(int).tolist()))
    finished: list[int | None] = [None] if frame["step"].isna().any() else []
    return [steps[index] for index in indices] + finished


def accumulate(part: pd.DataFrame, ends: tuple[float, float]) -> tuple[list[float], list[float]]:
    """Return a cumulative distribution as steps: log10 of the values, and shares from each value on.

    part: columns low and n, one row per bin. A step stands at the upper edge of its bin. ends: first and last
    position of the line.
    """
    ordered = part.sort_values("low")
    edges = np.clip((ordered["low"].to_numpy(float) + WIDTH).round(2), *ends)
    shares = np.cumsum(ordered["n"].to_numpy(float)) / float(ordered["n"].sum())
    return [ends[0], *edges.tolist(), ends[1]], [0.0, *shares.round(5).tolist(), 1.0]


def _draw(
    parts: Sequence[pd.DataFrame], titles: Sequence[str], columns: int, x_title: str, ends: tuple[int, int]
) -> Chart:
    layers = sorted({int(layer) for part in parts for layer in part["layer"]})
    named = sorted(set(np.linspace(0, len(layers) - 1, min(NAMED, len(layers))).round().astype(int).tolist()))
    colours = style.map_values(style.order_colours(layers))
    legend = style.make_legend(layers, "layer", values=[layers[at] for at in named])
    colour = alt.Stroke("layer:N", scale=colours, legend=legend)
    every = max(1, math.ceil((ends[1] - ends[0]) / 4))
    ticks = style.name_ticks({tick: style.format_tick(10.0**tick) for tick in range(ends[1], ends[0] - 1, -every)})
    x_scale, y_axis = alt.Scale(domain=list(ends), nice=False), alt.Axis(values=[0, 0.5, 1])
    panels = []
    for part, title in zip(parts, titles, strict=True):
        rows = []
        for layer, bins in part.groupby("layer", sort=True):
            x, y = accumulate(bins, ends)
            rows += [
                {"x": a, "y": b, "layer": int(str(layer)), "tip": f"layer {layer}"} for a, b in zip(x, y, strict=True)
            ]
        line = alt.Chart(alt.InlineData(rows)).mark_line(interpolate="step-after", strokeWidth=1.8)
        line = line.encode(
            x=alt.X("x:Q", title=x_title, scale=x_scale, axis=ticks),
            y=alt.Y("y:Q", title="share of values up to x", axis=y_axis),
            stroke=colour,
            **style.tip(),
        )
        panels.append(style.name_panel(line, title, columns, HEIGHT))
    return style.arrange(panels, columns)

"""Distributions of the singular values of weight matrices, the layers overlaid.

Yu et al. 2026, Fig. 10, has histograms, one panel per layer. Layers of some dozen values each are easier to compare as
cumulative distributions in one panel.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import altair as alt
import numpy as np

from tsfmscope.report import style
from tsfmscope.report.page.sections import Figure
from tsfmscope.report.plots import Plot
from tsfmscope.report.style import Chart
from tsfmscope.report.tables import StudyTables

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = ("model", "stack", "matrix", "layer", "low", "n")
# Number of decades of relative singular values that are shown.
DECADES = 5
# Width of a bin in decades; see histogram.sql and snapshots.sql in store/sql/report/study.
WIDTH = 0.05
MATRICES = {"q": "query projections", "mlp_in": "first MLP matrices"}
# Largest number of panels side by side.
PANELS = 3
# Largest number of layers in the legend.
NAMED = 6
HEIGHT = 150


def draw(study: StudyTables, models: Sequence[str]) -> Iterator[Figure]:
    """Draw one panel per model and matrix."""
    frame = study.rows("histogram", COLUMNS)
    if frame.empty:
        return
    stacks = frame.drop_duplicates("model").sort_values("model")
    names = ", ".join(f"{model} ({stack})" for model, stack in zip(stacks["model"], stacks["stack"], strict=True))
    words = f"Cumulative distributions of relative singular values, one panel per matrix and model: {names}."
    caption = (
        f"{names}. A line is one layer: the share of its singular values, divided by the largest, that are at most x. "
        "The further left a line rises, the lower the rank. Values below the smallest shown are counted at the edge."
    )
    yield Figure("histogram", draw_distributions(frame), words, caption)


def draw_distributions(frame: pd.DataFrame) -> Chart:
    """Draw the distribution of relative singular values: one panel per model and matrix, one line per layer.

    frame: COLUMNS. Each row of panels has one matrix; the layers' colours are in order
    from violet to orange. Values below the shown decades are counted at the left edge.
    """
    models = sorted(str(model) for model in frame["model"].unique())
    matrices = [name for name in MATRICES if name in set(frame["matrix"])]
    groups = [models[at : at + PANELS] for at in range(0, len(models), PANELS)]
    cells = [(model, matrix) for group in groups for matrix in matrices for model in group]
    parts = [frame[(frame["model"] == model) & (frame["matrix"] == matrix)] for model, matrix in cells]
    titles = [f"{model}\n{MATRICES[matrix]}" for model, matrix in cells]
    return draw_lines(parts, titles, min(PANELS, len(models)), "singular value ÷ largest (log)", (-DECADES, 0))


def accumulate(part: pd.DataFrame, ends: tuple[float, float]) -> tuple[list[float], list[float]]:
    """Return a cumulative distribution as steps: log10 of the values, and shares from each value on.

    part: columns low and n, one row per bin. A step stands at the upper edge of its bin. ends: first and last
    position of the line.
    """
    ordered = part.sort_values("low")
    edges = np.clip((ordered["low"].to_numpy(float) + WIDTH).round(2), *ends)
    shares = np.cumsum(ordered["n"].to_numpy(float)) / float(ordered["n"].sum())
    return [ends[0], *edges.tolist(), ends[1]], [0.0, *shares.round(5).tolist(), 1.0]


def draw_lines(
    parts: Sequence[pd.DataFrame], titles: Sequence[str], columns: int, x_title: str, ends: tuple[int, int]
) -> Chart:
    """Draw one panel per part: the cumulative distribution of each layer."""
    layers = sorted({int(layer) for part in parts for layer in part["layer"]})
    colours = style.map_values(style.order_colours(layers))
    legend = style.make_legend(layers, "layer", values=style.pick_evenly(layers, NAMED))
    colour = alt.Stroke("layer:N", scale=colours, legend=legend)
    every = max(1, math.ceil((ends[1] - ends[0]) / 4))
    ticks = style.name_ticks({tick: style.format_tick(10.0**tick) for tick in range(ends[1], ends[0] - 1, -every)})
    x_scale, y_axis = alt.Scale(domain=list(ends), nice=False), alt.Axis(values=[0, 0.5, 1])
    panels = []
    for part, title in zip(parts, titles, strict=True):
        rows = []
        for layer, bins in part.groupby("layer", sort=True):
            points = zip(*accumulate(bins, ends), strict=True)
            rows += [{"x": x, "y": y, "layer": int(str(layer)), "tip": f"layer {layer}"} for x, y in points]
        line = alt.Chart(alt.InlineData(rows)).mark_line(interpolate="step-after", strokeWidth=1.8)
        line = line.encode(
            x=alt.X("x:Q", title=x_title, scale=x_scale, axis=ticks),
            y=alt.Y("y:Q", title="share of values up to x", axis=y_axis),
            stroke=colour,
            **style.encode_tip(),
        )
        panels.append(style.name_panel(line, title, columns, HEIGHT))
    return style.arrange_panels(panels, columns)


PLOT = Plot(
    "Cumulative distribution of the singular values of a matrix, relative to the largest. One line per layer.",
    {"histogram": COLUMNS},
    draw,
    topic="rank",
)

"""Singular values of weight matrices, one panel per layer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tsfmscope.tasks.report import colorscale
from tsfmscope.tasks.report.charts import histograms
from tsfmscope.tasks.report.charts.figures import choose_colour
from tsfmscope.tasks.report.page.sections import Figure
from tsfmscope.tasks.report.plot import Plot
from tsfmscope.tasks.report.tables import StudyTables

COLUMNS = ("model", "stack", "matrix", "layer", "low", "n")


def draw(study: StudyTables, models: Sequence[str]) -> Iterator[Figure]:
    """Draw one figure per model."""
    for model, part in study.rows("histogram", COLUMNS).groupby("model", sort=True):
        alt = f"Histograms of relative singular values of {model}, one panel per matrix and layer, logarithmic."
        shades = f"Five shades, one per decade, from {colorscale.format_power(-5)} to 1."
        caption = f"{model}, {part['stack'].iloc[0]}: query projections in the upper panels, first MLP matrices in the"
        caption += f" lower ones. {shades}"
        figure = histograms.draw_histogram(part, choose_colour(str(model), models))
        yield Figure("histogram", figure, alt, caption, str(model))


PLOT = Plot(
    "Distribution of the singular values of a matrix, relative to the largest. Layers from left to right.",
    {"histogram": COLUMNS},
    draw,
    topic="rank",
)

"""Singular values of weight matrices, one panel per layer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tsfmscope.tasks.report import colorscale
from tsfmscope.tasks.report.charts import histograms
from tsfmscope.tasks.report.charts.figures import model_colour
from tsfmscope.tasks.report.page.sections import Figure
from tsfmscope.tasks.report.plot import Plot
from tsfmscope.tasks.report.tables import StudyTables

COLUMNS = ("model", "stack", "matrix", "layer", "low", "n")


def draw(study: StudyTables, models: Sequence[str]) -> Iterator[Figure]:
    """Draw one figure per model."""
    for model, part in study.rows("histogram", COLUMNS).groupby("model", sort=True):
        alt = f"Histograms of relative singular values of {model}, a panel a matrix and layer, logarithmic."
        shades = f"Five shades, a decade each, from {colorscale.power(-5)} to 1."
        caption = f"{model}, {part['stack'].iloc[0]}: query projections above, first MLP matrices below. {shades}"
        figure = histograms.histogram(part, model_colour(str(model), models))
        yield Figure("histogram", figure, alt, caption, str(model))


PLOT = Plot(
    "How many singular values of a matrix, relative to the largest, lie where; layers from left to right.",
    {"histogram": COLUMNS},
    draw,
    topic="rank",
)

"""Singular values of query projections at steps of a training."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tsfmscope.tasks.report.charts import histograms
from tsfmscope.tasks.report.charts.figures import choose_colour
from tsfmscope.tasks.report.page.sections import Figure
from tsfmscope.tasks.report.plot import Plot
from tsfmscope.tasks.report.tables import StudyTables

COLUMNS = ("model", "step", "stack", "layer", "low", "n")


def draw(study: StudyTables, models: Sequence[str]) -> Iterator[Figure]:
    """Draw one figure per model."""
    for model, part in study.rows("snapshots", COLUMNS).groupby("model", sort=True):
        alt = f"Histograms of singular values of query projections of {model}, one row per training step, one "
        alt += "column per layer."
        steps = part["step"].nunique()
        caption = f"{model}, {part['stack'].iloc[0]}. At most {histograms.STEPS} of {steps} snapshots are shown."
        figure = histograms.draw_snapshots(part, choose_colour(str(model), models))
        yield Figure("snapshots", figure, alt, caption, str(model))


PLOT = Plot(
    "Distribution of the singular values of each query projection. Training steps from top to bottom.",
    {"snapshots": COLUMNS},
    draw,
    topic="rank",
)

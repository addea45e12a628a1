"""Singular values of query projections at steps of a training."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tsfmscope.tasks.report.charts import histograms
from tsfmscope.tasks.report.charts.figures import model_colour
from tsfmscope.tasks.report.page.sections import Figure
from tsfmscope.tasks.report.plot import Plot
from tsfmscope.tasks.report.tables import StudyTables

COLUMNS = ("model", "step", "stack", "layer", "low", "n")


def draw(study: StudyTables, models: Sequence[str]) -> Iterator[Figure]:
    """Draw one figure per model."""
    for model, part in study.rows("snapshots", COLUMNS).groupby("model", sort=True):
        alt = f"Histograms of singular values of query projections of {model}, a row a training step, a column a layer."
        caption = f"{model}, {part['stack'].iloc[0]}; of {part['step'].nunique()} snapshots, a few are shown."
        figure = histograms.snapshots(part, model_colour(str(model), models))
        yield Figure("snapshots", figure, alt, caption, str(model))


PLOT = Plot(
    "How many singular values of each query projection lie where, during training, from above to below.",
    {"snapshots": COLUMNS},
    draw,
    topic="rank",
)

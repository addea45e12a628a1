"""Singular values of query projections at steps of a training."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tsfmscope.report.charts import histograms
from tsfmscope.report.page.sections import Figure
from tsfmscope.report.plot import Plot
from tsfmscope.report.tables import StudyTables

COLUMNS = ("model", "step", "stack", "layer", "low", "n")


def draw(study: StudyTables, models: Sequence[str]) -> Iterator[Figure]:
    """Draw one figure per model."""
    for model, part in study.rows("snapshots", COLUMNS).groupby("model", sort=True):
        alt = f"Cumulative distributions of the singular values of query projections of {model}, one panel per training"
        alt += " step, one line per layer."
        steps = part["step"].nunique()
        caption = f"{model}, {part['stack'].iloc[0]}. A line is one layer: the share of its non-zero singular values"
        caption += " that are at most x."
        caption += f" {histograms.STEPS} of {steps} snapshots are shown." if steps > histograms.STEPS else ""
        yield Figure("snapshots", histograms.draw_snapshots(part), alt, caption, str(model))


PLOT = Plot(
    "Cumulative distribution of the singular values of each query projection, one panel per training step. Values that "
    "grow out of the bulk move the upper end of a line to the right.",
    {"snapshots": COLUMNS},
    draw,
    topic="rank",
)

"""Distributions of the singular values of weight matrices, the layers overlaid."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tsfmscope.report.charts import histograms
from tsfmscope.report.page.sections import Figure
from tsfmscope.report.plot import Plot
from tsfmscope.report.tables import StudyTables

COLUMNS = ("model", "stack", "matrix", "layer", "low", "n")


def draw(study: StudyTables, models: Sequence[str]) -> Iterator[Figure]:
    """Draw one panel per model and matrix."""
    frame = study.rows("histogram", COLUMNS)
    if frame.empty:
        return
    stacks = frame.drop_duplicates("model").sort_values("model")
    names = ", ".join(f"{model} ({stack})" for model, stack in zip(stacks["model"], stacks["stack"], strict=True))
    alt = f"Cumulative distributions of relative singular values, one panel per matrix and model: {names}."
    caption = (
        f"{names}. A line is one layer: the share of its singular values, divided by the largest, that are at most x. "
        "The further left a line rises, the lower the rank. Values below the smallest shown are counted at the edge."
    )
    yield Figure("histogram", histograms.draw_distributions(frame), alt, caption)


PLOT = Plot(
    "Cumulative distribution of the singular values of a matrix, relative to the largest. One line per layer.",
    {"histogram": COLUMNS},
    draw,
    topic="rank",
)

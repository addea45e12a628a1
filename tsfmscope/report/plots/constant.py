"""Singular values of every layer's input for a constant series."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tsfmscope.report.charts import spectra
from tsfmscope.report.charts.style import format_power
from tsfmscope.report.page.sections import Figure
from tsfmscope.report.plot import Plot
from tsfmscope.report.tables import StudyTables

COLUMNS = ("model", "stack", "layer", "tokens", "floor", "j", "ratio")
# Tolerance of the rank in the caption.
EPSILON = 1e-2


def draw(study: StudyTables, models: Sequence[str]) -> Iterator[Figure]:
    """Draw one panel per model, stack and kind of tokens."""
    frame = study.rows("constant", COLUMNS)
    if frame.empty:
        return
    alt = "Line charts of relative singular values of every layer's input for a constant series, one line per layer."
    deepest = frame[frame["layer"] == frame["layer"].max()]
    ranks = deepest[deepest["ratio"] > EPSILON].groupby(["model", "stack", "tokens"])["j"].max()
    texts = [f"{model} {stack}, {spectra.SPECIAL.get(t, t)}: {rank}" for (model, stack, t), rank in ranks.items()]
    caption = f"Values above the rounding error. Rank at tolerance {format_power(-2)} after the last layer:"
    caption += f" {'; '.join(texts)}."
    yield Figure("constant", spectra.draw_constant(frame), alt, caption)


PLOT = Plot(
    "The tokens of a constant series are all equal, a matrix of rank 1. With special tokens the rank is higher.",
    {"constant": COLUMNS},
    draw,
    topic="rank",
)

"""Accuracy against size of models pretrained with narrow heads, growing with depth and flat."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tsfmscope.tasks.report.charts import compression
from tsfmscope.tasks.report.page.sections import Figure
from tsfmscope.tasks.report.plot import Plot
from tsfmscope.tasks.report.tables import StudyTables

COLUMNS = ("whose", "family", "line", "model", "schedule", "size", "quantity", "value")


def draw(study: StudyTables, models: Sequence[str]) -> Iterator[Figure]:
    """Draw one panel per family and score."""
    frame = study.rows("pretrained", COLUMNS)
    if frame.empty:
        return
    ours = frame[frame["whose"] == "measured"]
    alt = f"Line charts of scores relative to the dense model against size, {ours['model'].nunique()} models."
    caption = "Lines: mean over seeds, points: seeds; dashed: flat ranks; grey: as printed."
    if frame["quantity"].str.startswith("score ").any():
        caption += (
            " The heads of the paper's columns do not say which is WQL and which MASE: score a and b, as they come."
        )
    yield Figure("pretrained", compression.pretrained(frame), alt, caption)


PLOT = Plot(
    "Models pretrained from random weights with narrow heads, relative to the dense model of the same seed: ranks that "
    "grow with depth (flow) against flat ones.",
    {"pretrained": COLUMNS},
    draw,
    topic="compression",
)

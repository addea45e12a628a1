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
    caption = "Lines: mean over seeds; points: single seeds. Dashed: flat ranks. Grey: printed numbers."
    if frame["quantity"].str.startswith("score ").any():
        caption += (
            " The headings of the paper's columns do not tell WQL from MASE: score a is the first column, score b the "
            "second."
        )
    yield Figure("pretrained", compression.draw_pretrained(frame), alt, caption)


PLOT = Plot(
    "Models pretrained from random weights with narrow heads, relative to the dense model of the same seed. Ranks "
    "either grow with depth (flow) or are equal in all layers (flat).",
    {"pretrained": COLUMNS},
    draw,
    topic="compression",
)

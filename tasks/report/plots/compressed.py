"""Accuracy and overlap against size, one line per method, next to the paper's numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tsfmscope.tasks.report.charts import compression
from tsfmscope.tasks.report.page.sections import Figure
from tsfmscope.tasks.report.plot import Plot
from tsfmscope.tasks.report.tables import StudyTables

COLUMNS = (
    "whose", "family", "model", "method", "size", "rank_ratio", "wql_ratio", "mase_ratio", "overlap", "lppl",
)  # fmt: skip


def draw(study: StudyTables, models: Sequence[str]) -> Iterator[Figure]:
    """Draw one panel per family and score."""
    frame = study.rows("compressed", COLUMNS)
    if frame.empty:
        return
    methods = sorted(set(frame.loc[frame["whose"] == "measured", "method"]))
    alt = "Line charts of scores relative to the original against the share of the attention that is left, a line a "
    alt += f"method: {', '.join(methods) or 'none measured'}."
    caption = (
        "Grey: the paper's Table 2, base-sized models, cut by svd; its size is mean rank over width (dashed: in-domain "
        "or T5, dotted: zero-shot). Ours is the share of attention parameters that is left, which for thin factors of "
        "svd is up to twice the mean rank over width."
    )
    yield Figure("compressed", compression.compressed(frame), alt, caption)


PLOT = Plot(
    "What is lost when the attention of a trained model is cut, by method and by what is left of it. 1 is the "
    "original.",
    {"compressed": COLUMNS},
    draw,
    topic="compression",
)

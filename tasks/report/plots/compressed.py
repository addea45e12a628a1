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
    alt = "Line charts of scores relative to the original against the share of the attention that is left, one "
    alt += f"line per method: {', '.join(methods) or 'none measured'}."
    caption = (
        "Grey: Table 2 of Yu et al. 2026, base-sized models compressed by svd (dashed: in-domain or T5, dotted: "
        "zero-shot). Their size is mean rank ÷ width. Ours is the share of attention parameters that is left; for svd "
        "it is up to twice mean rank ÷ width."
    )
    yield Figure("compressed", compression.draw_compressed(frame), alt, caption)


PLOT = Plot(
    "Loss of accuracy when the attention of a trained model is compressed, by method and by the share that is left. "
    "1 is the original model.",
    {"compressed": COLUMNS},
    draw,
    topic="compression",
)

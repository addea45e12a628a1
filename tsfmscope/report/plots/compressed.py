"""Accuracy and overlap against size, one colour and symbol per method, next to the paper's numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from tsfmscope.report.charts import compression
from tsfmscope.report.page.sections import Figure
from tsfmscope.report.plot import Plot
from tsfmscope.report.tables import StudyTables

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = (
    "whose", "family", "model", "method", "size", "rank_ratio", "wql_ratio", "mase_ratio", "overlap", "lppl",
)  # fmt: skip
INTERVALS = ("model", "quantity", "n", "estimate", "low", "high")


def draw(study: StudyTables, models: Sequence[str]) -> Iterator[Figure]:
    """Draw one panel per family and score."""
    frame, intervals = study.rows("compressed", COLUMNS), study.rows("compressed_intervals", INTERVALS)
    if frame.empty:
        return
    methods = sorted(set(frame.loc[frame["whose"] == "measured", "method"]))
    alt = "Dot plots of scores relative to the original against the share of the attention that is left, one "
    alt += f"colour and symbol per method: {', '.join(methods) or 'none measured'}."
    caption = (
        "The line at 1 is the original. Log perplexity is that of the next tokens; the overlap is that of the ten "
        f"likeliest next tokens (Jaccard).{_describe_intervals(intervals)} Grey: Table 2 of Yu et al. 2026, base-sized "
        "models compressed by svd. Their size is mean rank ÷ width. Ours is the share of attention parameters that is "
        "left; for svd it is up to twice mean rank ÷ width."
    )
    yield Figure("compressed", compression.draw_compressed(frame, intervals), alt, caption)


def _describe_intervals(intervals: pd.DataFrame) -> str:
    """Return a sentence on the intervals, with n; empty without intervals."""
    tested = intervals.loc[intervals["low"].notna(), "n"]
    if tested.empty:
        return ""
    low, high = int(tested.min()), int(tested.max())
    n = str(low) if low == high else f"{low} to {high}"
    return f" Lines: 95 % intervals, Student's t over n = {n} data sets; they may end outside the panel."


PLOT = Plot(
    "Loss of accuracy when the attention of a trained model is compressed, by method and by the share that is left. "
    "1 is the original model.",
    {"compressed": COLUMNS, "compressed_intervals": INTERVALS},
    draw,
    topic="compression",
)

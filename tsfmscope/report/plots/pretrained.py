"""Accuracy of models pretrained with narrow heads, growing with depth and flat."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from tsfmscope.report.charts import pretrained
from tsfmscope.report.page.sections import Figure
from tsfmscope.report.plot import Plot
from tsfmscope.report.tables import StudyTables

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = ("whose", "family", "line", "model", "schedule", "size", "quantity", "value")
INTERVALS = (
    "model", "base_model", "line", "schedule", "kinds", "is_reused", "is_shared", "quantity", "n_models", "n", "ratio",
    "low", "high",
)  # fmt: skip


def draw(study: StudyTables, models: Sequence[str]) -> Iterator[Figure]:
    """Draw one panel per score and one row per line of models."""
    frame, intervals = study.rows("pretrained", COLUMNS), study.rows("pretrained_intervals", INTERVALS)
    ours = frame[frame["whose"] == "measured"]
    if ours.empty:
        return
    alt = "Dot plots of scores relative to the dense model, one row per line of models, "
    alt += f"{ours['model'].nunique()} models."
    caption = (
        "Size: share of the attention's parameters. Flow: head widths grow with depth; flat: all layers have one head "
        f"width.{_describe_intervals(intervals)}"
    )
    if frame["quantity"].str.startswith(pretrained.UNNAMED).any():
        caption += " The headings of the paper's two columns do not tell WQL from MASE: each row has both numbers."
    yield Figure("pretrained", pretrained.draw_pretrained(frame, intervals), alt, caption)


def _describe_intervals(intervals: pd.DataFrame) -> str:
    """Return sentences on what the intervals are over, with n; empty without intervals."""
    tested = intervals[intervals["low"].notna()]
    texts = []
    for is_over_seeds, units in ((True, "seeds"), (False, "data sets, for lines of one seed")):
        part = tested[(tested["n_models"] > 1) == is_over_seeds]
        if len(part):
            low, high = int(part["n"].min()), int(part["n"].max())
            texts.append(f"{low if low == high else f'{low} to {high}'} {units}")
    return f" 95 % intervals: Student's t over {'; over '.join(texts)}." if texts else ""


PLOT = Plot(
    "Models pretrained from random weights with narrow heads, relative to the dense model of the same seed: below 1 "
    "the narrow model has less error. Head widths either grow with depth (flow) or are equal in all layers (flat).",
    {"pretrained": COLUMNS, "pretrained_intervals": INTERVALS},
    draw,
    topic="compression",
)

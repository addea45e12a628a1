"""Embedded tokens on two singular directions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tsfmscope.report.charts import heatmaps
from tsfmscope.report.page.sections import Figure
from tsfmscope.report.plot import Plot
from tsfmscope.report.tables import StudyTables

COLUMNS = ("model", "x_axis", "dataset", "condition", "token", "type", "value", "x", "y")


def draw(study: StudyTables, models: Sequence[str]) -> Iterator[Figure]:
    """Draw one panel per model, data set and condition."""
    frame = study.rows("planes", COLUMNS)
    if frame.empty:
        return
    panels = len(frame.drop_duplicates(["model", "dataset", "condition"]))
    alt = f"Scatter plots of embedded tokens on two singular directions, {panels} panels, {len(frame):,} points."
    caption = (
        "Colour: the value that a token stands for, else its id, from violet (smallest) to orange (largest). Tokens "
        "with neither are blue."
    )
    yield Figure("planes", heatmaps.draw_planes(frame), alt, caption)


PLOT = Plot(
    "Embedded tokens on their two leading singular directions, one panel per model.",
    {"planes": COLUMNS},
    draw,
    topic="rank",
)

"""Numerical rank against the quantity that a grid of models varies."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tsfmscope.report.charts import growth
from tsfmscope.report.page.sections import Figure
from tsfmscope.report.plot import Plot
from tsfmscope.report.plots.growth import explain_hollow
from tsfmscope.report.tables import StudyTables

COLUMNS = ("model", "family", "quantity", "x", "epsilon", "width", "below_noise_floor", "rank", "n")


def draw(study: StudyTables, models: Sequence[str]) -> Iterator[Figure]:
    """Draw one panel per quantity and family; nothing if no x is above zero."""
    frame = study.rows("trend", COLUMNS)
    if not (frame["x"] > 0).any():
        return
    alt = (
        f"Line charts of mean numerical rank, {frame['quantity'].nunique()} matrices, against the quantity that varies."
    )
    varies_width = (frame["width"] == frame["x"]).groupby(frame["quantity"]).all().any()
    caption = "Dotted: the width, and a half, a quarter and an eighth of it." if varies_width else ""
    if frame.duplicated(["family", "quantity", "epsilon", "x"]).any():
        caption = f"Dots: models, such as trainings with several seeds; lines: their means. {caption}".strip()
    yield Figure("trend", growth.draw_trend(frame), alt, (caption + explain_hollow(frame)).strip())


PLOT = Plot(
    "Numerical rank, averaged over layers or data sets, against the quantity in which the models differ.",
    {"trend": COLUMNS},
    draw,
    topic="rank",
)

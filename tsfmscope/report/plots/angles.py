"""Angles between tokens, or between rows of a projection."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from tsfmscope.report.charts import heatmaps
from tsfmscope.report.page.sections import Figure
from tsfmscope.report.plot import Plot
from tsfmscope.report.plots import spectrum
from tsfmscope.report.tables import StudyTables

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = (*heatmaps.PANEL, "x", "dimension", "row", "head", "degrees")
KINDS = {
    "rows": "Rows of the query projection of the first block; white lines separate heads. ",
    "tokens": "Embedded tokens of one window, in order. ",
    "gaussian": "Gaussian: independent random vectors. ",
}


def draw(study: StudyTables, models: Sequence[str]) -> Iterator[Figure]:
    """Draw singular values of embedded tokens if they were measured, and one heat map per set of vectors."""
    yield from spectrum.draw_spectrum(study, models)
    frame = study.rows("angles", COLUMNS)
    if len(frame):
        parts = heatmaps.split_panels(frame)
        medians = [f"{heatmaps.make_title(part).replace(chr(10), ', ')}: {_median(part)}°" for part in parts]
        alt = f"Heat maps of angles between vectors, {len(parts)} panels."
        kinds = "".join(text for kind, text in KINDS.items() if kind in set(frame["what"]))
        caption = f"{kinds}Median angle between two vectors: {'; '.join(medians)}."
        yield Figure("angles", heatmaps.draw_angles(frame), alt, caption)


def _median(part: pd.DataFrame) -> str:
    """Return the median angle between two different vectors in whole degrees, as text; – if there is none."""
    import numpy as np

    matrix = heatmaps.read_matrix(part).astype(float)
    pairs = matrix[~np.eye(len(matrix), dtype=bool)]
    pairs = pairs[pairs <= heatmaps.RIGHT]
    return f"{np.median(pairs):.0f}" if pairs.size else "–"


PLOT = Plot(
    "Angle between every pair of vectors, from 0 (dark) to a right angle (bright). The brighter, the higher the rank.",
    {"angles": COLUMNS, "embedded": spectrum.COLUMNS},
    draw,
    topic="rank",
)

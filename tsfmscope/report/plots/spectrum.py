"""Singular values of the embedded tokens, one line per model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from tsfmscope.report.charts import spectra
from tsfmscope.report.page.sections import Figure
from tsfmscope.report.plot import Plot
from tsfmscope.report.plots import plane
from tsfmscope.report.tables import StudyTables

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = ("model", "modality", "x", "dataset", "condition", "n_rows", "floor", "j", "ratio")


def draw(study: StudyTables, models: Sequence[str]) -> Iterator[Figure]:
    """Draw the singular values, and the tokens on two singular directions if they were measured."""
    yield from draw_spectrum(study, models)
    yield from plane.draw(study, models)


def draw_spectrum(study: StudyTables, models: Sequence[str]) -> Iterator[Figure]:
    """Draw one line per model, data set and condition."""
    frame = study.rows("embedded", COLUMNS)
    if frame.empty:
        return
    cells = frame.drop_duplicates(["model", "dataset", "condition"])
    alt = f"Line chart of relative singular values of embedded tokens, logarithmic, {len(cells)} lines, one per model"
    alt += " and data set." if spectra.list_dataset_panels(frame) else "."
    caption = f"Lines end at the rounding error. Number of tokens: {_range(cells['n_rows'])}."
    named = sorted(set(cells["dataset"]))
    caption += f" Data sets: {', '.join(named)}." if not spectra.list_dataset_panels(frame) else ""
    yield Figure("embedded", spectra.draw_spectrum(frame, models), alt, caption)


def _range(values: pd.Series) -> str:
    low, high = int(values.min()), int(values.max())
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


PLOT = Plot(
    "Singular values of the matrix of embedded tokens, relative to the largest. The faster they fall, the lower the "
    "rank.",
    {"embedded": COLUMNS, "planes": plane.COLUMNS},
    draw,
    topic="rank",
)

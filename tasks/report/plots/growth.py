"""Numerical rank of inputs and weights by layer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from tsfmscope.tasks.report.charts import growth
from tsfmscope.tasks.report.page.sections import Figure
from tsfmscope.tasks.report.plot import Plot
from tsfmscope.tasks.report.tables import StudyTables

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = (
    "model", "modality", "stack", "layer", "epsilon", "full_rank", "below_noise_floor", "rank", "low", "high", "n",
)  # fmt: skip


def draw(study: StudyTables, models: Sequence[str]) -> Iterator[Figure]:
    """Draw the ranks of layer inputs, and those of query projections."""
    inputs, weights = study.rows("inputs", COLUMNS), study.rows("weights", COLUMNS)
    if len(inputs):
        n = int(inputs["n"].max())
        bands = f" Median over {n} data sets; bands: range." if n > 1 else ""
        caption = (
            f"Input of each layer; the last point is the output of the last layer.{bands} Dotted: full rank."
            f"{explain_hollow(inputs)}"
        )
        alt = f"Line charts of the numerical rank of inputs by layer, one panel per model: {_names(inputs)}."
        yield Figure("inputs", growth.draw_growth(inputs, offset=1), alt, caption, "Layer inputs")
    if len(weights):
        alt = (
            f"Line charts of the numerical rank of query projections by layer, one panel per model: {_names(weights)}."
        )
        caption = f"Whole query projections, not single heads. Dotted: full rank.{explain_hollow(weights)}"
        yield Figure("weights", growth.draw_growth(weights, offset=0), alt, caption, "Query projections")


def explain_hollow(frame: pd.DataFrame) -> str:
    """Return a sentence on hollow points; empty if there are none."""
    return " Hollow: ε is below the rounding error." if frame["below_noise_floor"].any() else ""


def _names(frame: pd.DataFrame) -> str:
    return ", ".join(growth.order_panels(frame))


PLOT = Plot(
    "Numerical rank by layer: the number of singular values above ε times the largest.",
    {"inputs": COLUMNS, "weights": COLUMNS},
    draw,
    topic="rank",
)

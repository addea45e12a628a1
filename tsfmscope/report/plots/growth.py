"""Numerical rank of inputs and weights by layer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from tsfmscope.report.charts import depth, growth
from tsfmscope.report.page.sections import Figure
from tsfmscope.report.plot import Plot
from tsfmscope.report.tables import StudyTables

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = (
    "model", "modality", "stack", "layer", "epsilon", "full_rank", "below_noise_floor", "rank", "low", "high", "n",
)  # fmt: skip
# Largest number of models that are drawn as lines, one panel each.
LINES = 3


def draw(study: StudyTables, models: Sequence[str]) -> Iterator[Figure]:
    """Draw the ranks of layer inputs, and those of query projections; many models as heat maps."""
    inputs, weights = study.rows("inputs", COLUMNS), study.rows("weights", COLUMNS)
    if len(inputs):
        few, n = int(inputs["n"].min()), int(inputs["n"].max())
        median = f" Median over {n if few == n else f'{few} to {n}'} data sets." if n > 1 else ""
        end = "column" if inputs["model"].nunique() > LINES else "point"
        text = f"Input of each layer; the last {end} is the output of the last layer.{median}"
        yield _draw(inputs, "inputs", "Layer inputs", text, offset=1, has_bands=n > 1)
    if len(weights):
        text = "Whole query projections, not single heads."
        yield _draw(weights, "weights", "Query projections", text, offset=0)


def _draw(rows: pd.DataFrame, name: str, title: str, text: str, *, offset: int, has_bands: bool = False) -> Figure:
    """Draw a heat map of more than LINES models, else lines."""
    names, what = ", ".join(growth.order_panels(rows)), title.lower()
    if rows["model"].nunique() > LINES:
        figure = depth.draw_rank_maps(rows, offset=offset)
        noise = f" {depth.NOISE}: the tolerance is below the rounding error." if rows["below_noise_floor"].any() else ""
        caption = f"{text} The other tolerance, 10⁻³, is in the CSV, and so are ranges.{noise}"
        alt = f"Heat maps of the numerical rank of {what} divided by the width, one row per model, one column per layer"
        return Figure(name, figure, f"{alt}: {names}.", caption, title)
    bands = " Bands: range." if has_bands else ""
    alt = f"Line charts of the numerical rank of {what} by layer, one panel per model: {names}."
    caption = f"{text}{bands} Dotted: full rank.{explain_hollow(rows)}"
    return Figure(name, growth.draw_growth(rows, offset=offset), alt, caption, title)


def explain_hollow(frame: pd.DataFrame) -> str:
    """Return a sentence on hollow points; empty if there are none."""
    return " Hollow: the tolerance is below the rounding error." if frame["below_noise_floor"].any() else ""


PLOT = Plot(
    "Numerical rank by layer: the number of singular values above the tolerance times the largest.",
    {"inputs": COLUMNS, "weights": COLUMNS},
    draw,
    topic="rank",
)

"""Correlation of isotropy with error in each data set, and its mean with an interval."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from tsfmscope.report.charts import forest
from tsfmscope.report.charts.figures import NOT_EVENNESS
from tsfmscope.report.page.sections import Figure
from tsfmscope.report.plot import Plot
from tsfmscope.report.tables import StudyTables

if TYPE_CHECKING:
    import pandas as pd

ROWS = ("dataset", "condition", "n_models", "spearman", "low", "high")
MEAN = ("n", "n_blocks", "spearman", "low", "high", "p", "p_smallest", "reason")


def draw(study: StudyTables, models: Sequence[str]) -> Iterator[Figure]:
    """Draw the forest plot; nothing if no data set has a correlation."""
    frame, means = study.rows("dataset_correlations", ROWS), study.rows("mean_correlation", MEAN)
    rows = frame[frame["spearman"].notna()]
    if rows.empty:
        return
    mean = {str(name): value for name, value in means.iloc[0].items()} if len(means) else dict.fromkeys(MEAN)
    names = [name for name in study.conditions if name in set(rows["condition"])]
    words = ", ".join(filter(None, forest.describe_mean(mean))) or "The mean is undefined"
    alt = f"Forest plot of {len(rows)} correlations in {rows['dataset'].nunique()} data sets. {words}."
    caption = (
        f"Each mark is Spearman's ρ of isotropy (ζ′ minus its null mean, in the last layer) and log NMSE over "
        f"{_count_models(rows)} on one data set. Left of 0, shaded: more isotropic models have less error, as Shelim "
        f"et al. 2025 claim.{NOT_EVENNESS}"
    )
    if forest.is_number(mean["spearman"]):
        interval = ", with its 95 % bootstrap interval" if forest.is_number(mean["low"]) else ", without an interval"
        caption += f" Diamond: mean of the {len(rows)} correlations{interval}."
    if len(names) > 1:
        caption += f" Filled: {names[0]}; open: {', '.join(names[1:])}."
    if forest.is_number(mean["p_smallest"]):
        caption += f" With so few models p is at least {mean['p_smallest']:.2g}."
    if len(frame) > len(rows):
        caption += f" {len(frame) - len(rows)} more correlations are undefined: too few models, or equal values."
    yield Figure("dataset_correlations", forest.draw_forest(rows, mean, study.conditions), alt, caption)


def _count_models(rows: pd.DataFrame) -> str:
    low, high = int(rows["n_models"].min()), int(rows["n_models"].max())
    return f"{low} models" if low == high else f"{low} to {high} models"


PLOT = Plot(
    "One row per data set. Left of 0, models with more isotropic states have less error.",
    {"dataset_correlations": ROWS, "mean_correlation": MEAN},
    draw,
)

"""NMSE against isotropy, one panel per domain."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from tsfmscope.report.charts import figures, panels
from tsfmscope.report.page.sections import Figure
from tsfmscope.report.plot import Plot
from tsfmscope.report.tables import StudyTables

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = (
    "model",
    "dataset",
    "domain",
    "paper",
    "stands_in_for",
    "condition",
    *figures.AXES,
    "nmse",
    *panels.RHO.values(),
)
# End of the caption of a study that shows the measure of the paper.
TESTED_MEASURE = " The plot shows |ζ′| as printed; the tests below use ζ′ minus its null mean."


def draw(study: StudyTables, models: Sequence[str]) -> Iterator[Figure]:
    """Draw the panels; nothing if no point has a value on both logarithmic axes."""
    frame, of_paper = study.rows("points", COLUMNS), study.figure is not None
    points = panels.place_points(frame, of_paper=of_paper)
    if points.empty:
        return
    domains = points["panel"].unique()
    alt = (
        f"{len(domains)} scatter plots of NMSE against {figures.AXES[panels.choose_measure(of_paper)]}, one per domain "
        f"({', '.join(domains)}), {len(points)} points, both axes logarithmic and shared."
    )
    conditions = [name for name in study.conditions if name in set(points["condition"])]
    caption = (
        "Filled: first data set of the domain; open: second. A line joins the two of a model. ρ: Spearman correlation "
        "of isotropy and error over models, negative if more isotropic models have less error." + figures.NOT_EVENNESS
    )
    caption += f" Condition: {conditions[0]}." if len(conditions) == 1 else f" Dashes: {', '.join(conditions)}."
    caption += describe_datasets(points) + figures.describe_undrawable(len(frame), len(points))
    caption += TESTED_MEASURE if of_paper else ""
    drawn = panels.draw_by_domain(frame, models, study.conditions, of_paper=of_paper)
    yield Figure("points", drawn, alt, caption)


def describe_datasets(points: pd.DataFrame) -> str:
    """Return a sentence on the data sets whose names are not already domain and number; empty without any."""
    names: dict[str, list[str]] = {}
    for row in points.drop_duplicates("dataset").sort_values(["order", "number"]).itertuples(index=False):
        if row.dataset != f"{row.domain}-{row.number}":
            stand_in = " (a stand-in)" if isinstance(row.stands_in_for, str) else ""
            names.setdefault(str(row.domain), []).append(f"{row.number} {row.dataset}{stand_in}")
    text = "; ".join(f"{domain} {', '.join(datasets)}" for domain, datasets in names.items())
    return f" Data sets: {text}." if text else ""


PLOT = Plot(
    "One panel per domain, one point per model and data set. Further left, ζ′ is nearer to its null; lower is less "
    "error. Point at a mark, or tap it, to read it.",
    {"points": COLUMNS},
    draw,
)

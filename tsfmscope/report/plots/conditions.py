"""Change of isotropy and error from one condition to another, one row per data set."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tsfmscope.report.charts import figures, pairs, panels
from tsfmscope.report.page.sections import Figure
from tsfmscope.report.plot import Plot
from tsfmscope.report.plots.domains import COLUMNS, describe_datasets
from tsfmscope.report.tables import StudyTables


def draw(study: StudyTables, models: Sequence[str]) -> Iterator[Figure]:
    """Draw the arrows; nothing if there is no isotropy, or no error, that a logarithmic axis can show."""
    frame, of_paper = study.rows("points", COLUMNS), study.figure is not None
    rows = pairs.pair_rows(frame, of_paper=of_paper)
    if not (rows["isotropy"].notna().any() and rows["nmse"].notna().any()):
        return
    first, *others = [name for name in study.conditions if name in set(rows["condition"])]
    same, count = pairs.count_same(rows, [first, *others])
    symbol = figures.AXES[panels.choose_measure(of_paper)]
    alt = (
        f"Arrows from condition {first} to {', '.join(others) or 'no other'}, of {symbol} and of NMSE, for "
        f"{rows['dataset'].nunique()} data sets; both change in the same direction in {same} of {count} pairs."
    )
    caption = (
        f"Ring: {first}; triangle: {', '.join(others) or 'none'}. Further left, ζ′ is nearer to its null and the error "
        f"is smaller.{figures.NOT_EVENNESS} “{pairs.SAME}”: both change in the same direction, as the paper claims "
        f"({same} of {count}); “{pairs.OPPOSITE}”: they do not."
    )
    if of_paper:
        tested = pairs.count_same(pairs.pair_rows(frame, of_paper=False), [first, *others])
        caption += " The plot shows |ζ′| as printed. By ζ′ minus its null mean, which the tests below use, it is "
        caption += f"{tested[0]} of {tested[1]}."
    missing = int(rows[["isotropy", "nmse"]].isna().any(axis=1).sum())
    if missing:
        verb = "lacks" if missing == 1 else "lack"
        caption += f" {missing} of {len(rows)} results {verb} a positive value on one axis; the CSV contains them."
    caption += describe_datasets(rows)
    yield Figure("points", pairs.draw_pairs(frame, models, study.conditions, of_paper=of_paper), alt, caption)


PLOT = Plot(
    "One row per data set. Arrows lead from the first condition to the second, in isotropy and in error.",
    {"points": COLUMNS},
    draw,
)

"""Change of isotropy and error from one condition to another, one row per data set."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import altair as alt
import numpy as np

from tsfmscope.report import scatter, style
from tsfmscope.report.page.sections import Figure
from tsfmscope.report.plots import Plot
from tsfmscope.report.plots.domains import COLUMNS, choose_measure, describe_datasets, number_datasets
from tsfmscope.report.style import Chart, make_rows
from tsfmscope.report.tables import StudyTables

if TYPE_CHECKING:
    import pandas as pd

# Pixels of a row of one arrow.
ARROW = 15
# Texts at the right: both quantities change in the same direction, or not.
SAME, OPPOSITE = "yes", "no"


def draw(study: StudyTables, models: Sequence[str]) -> Iterator[Figure]:
    """Draw the arrows; nothing if there is no isotropy, or no error, that a logarithmic axis can show."""
    frame, of_paper = study.rows("points", COLUMNS), study.figure is not None
    rows = pair_rows(frame, of_paper=of_paper)
    if not (rows["isotropy"].notna().any() and rows["nmse"].notna().any()):
        return
    first, *others = [name for name in study.conditions if name in set(rows["condition"])]
    same, count = count_same(rows, [first, *others])
    symbol = scatter.AXES[choose_measure(of_paper)]
    words = (
        f"Arrows from condition {first} to {', '.join(others) or 'no other'}, of {symbol} and of NMSE, for "
        f"{rows['dataset'].nunique()} data sets; both change in the same direction in {same} of {count} pairs."
    )
    caption = (
        f"Ring: {first}; triangle: {', '.join(others) or 'none'}. Further left, ζ′ is nearer to its null and the error "
        f"is smaller.{scatter.NOT_EVENNESS} “{SAME}”: both change in the same direction, as the paper claims "
        f"({same} of {count}); “{OPPOSITE}”: they do not."
    )
    if of_paper:
        tested = count_same(pair_rows(frame, of_paper=False), [first, *others])
        caption += " The plot shows |ζ′| as printed. By ζ′ minus its null mean, which the tests below use, it is "
        caption += f"{tested[0]} of {tested[1]}."
    missing = int(rows[["isotropy", "nmse"]].isna().any(axis=1).sum())
    if missing:
        verb = "lacks" if missing == 1 else "lack"
        caption += f" {missing} of {len(rows)} results {verb} a positive value on one axis; the CSV contains them."
    caption += describe_datasets(rows)
    yield Figure("points", draw_pairs(frame, models, study.conditions, of_paper=of_paper), words, caption)


def draw_pairs(
    frame: pd.DataFrame, models: Sequence[str], conditions: Sequence[str], *, of_paper: bool = True
) -> Chart:
    """Draw changes of isotropy (left) and of error (right), one arrow per model and data set.

    frame: model, dataset, domain, paper, condition, the measure, nmse. A value without a logarithm is not
    drawn; the other values of its data set are.
    models: the models of the whole page, which determine the colours.
    conditions: in the study's order: a ring is the first, a triangle each further one.
    of_paper: whether to draw the printed |ζ′| or |ζ′ − its null mean|.

    A word at the right tells whether both changed in the same direction, from the first condition to the
    last.
    """
    measure, rows = choose_measure(of_paper), pair_rows(frame, of_paper=of_paper)
    shown = [name for name in conditions if name in set(rows["condition"])]
    rows = scatter.describe_points(rows.assign(place=rows["condition"].map(shown.index)), measure)
    names = rows.sort_values(["order", "number"])["dataset"].unique().tolist()
    present = [name for name in dict.fromkeys([*models, *rows["model"]]) if name in set(rows["model"])]
    colours = {name: style.choose_colour(name, models) for name in present}
    marks = [
        {"dataset": dataset, "model": model, "mark": mark}
        for model in present
        for dataset, mark in compare(rows[rows["model"] == model], shown).items()
    ]
    y, offset = make_rows(names), alt.YOffset("model:N", sort=present)
    stroke, fill = style.encode_stroke("model", colours), style.encode_fill("model", colours)
    panels: list[Chart] = []
    for column, title in (("isotropy", scatter.ISOTROPY_TITLES[measure]), ("nmse", scatter.ERROR_TITLE)):
        x = alt.X(f"{column}:Q", **style.make_log_axis(title, rows[column]))
        base = alt.Chart(_point_triangles(rows, column)).encode(x=x, y=y, yOffset=offset, stroke=stroke)
        line = base.mark_line(aria=False).encode(detail="dataset:N", order="place:Q")
        points = base.mark_point(size=60).encode(
            fill=fill,
            fillOpacity=style.open_if("datum.place == 0"),
            shape=alt.Shape("symbol:N", scale=None),
            **style.encode_tip(),
        )
        panels.append(alt.layer(line, points))
    claimed = alt.Chart(alt.InlineData(marks)).mark_text(dx=16, align="left", aria=False).encode(
        x=alt.value("width"), y=y, yOffset=offset, text="mark:N", fill=fill
    )  # fmt: skip
    panels[1] = alt.layer(panels[1], claimed)
    height = max(60, len(names) * (ARROW * len(present) + 8))
    titles = ("Isotropy", "Error; right: as claimed?")
    panels = [style.name_panel(panel, title, 3, height) for panel, title in zip(panels, titles, strict=True)]
    for layer in (*panels[1].layer[0].layer, panels[1].layer[1]):
        layer.encoding.y.axis = alt.Axis(labels=False, ticks=False, domain=False, grid=False)
    return style.arrange_panels([panel.properties(width=250) for panel in panels], 1 + len(panels))


def _point_triangles(rows: pd.DataFrame, column: str) -> pd.DataFrame:
    """Return the drawable rows of a quantity with `symbol`: a ring first, then triangles that point along the change.

    rows: with `place`, the position of the condition.
    """
    part = rows[rows[column].notna()].sort_values("place", kind="stable")
    steps = part.groupby(["model", "dataset"], sort=False)[column].diff()
    symbols = steps.map(lambda step: "triangle-left" if step < 0 else "triangle-right")
    return part.assign(symbol=symbols.where(part["place"] > 0, "circle"))


def pair_rows(frame: pd.DataFrame, *, of_paper: bool = True) -> pd.DataFrame:
    """Return all rows with their place, and with NaN where isotropy or error has no logarithm."""
    rows = number_datasets(frame, of_paper=of_paper)
    rows = rows.assign(isotropy=rows[choose_measure(of_paper)].astype(float).abs(), nmse=rows["nmse"].astype(float))
    values = rows[["isotropy", "nmse"]]
    return rows.assign(**values.where(np.isfinite(values) & (values > 0)))


def compare(rows: pd.DataFrame, conditions: Sequence[str]) -> dict[str, str]:
    """Return data set -> mark: whether isotropy and error changed in the same direction; "" if that is unknown.

    rows: of one model, as `pair_rows` returns them. The directions are those from the first to the last
    condition.
    """
    marks = {}
    for name, part in rows.groupby("dataset", sort=False):
        ends = part.set_index("condition")[["isotropy", "nmse"]].reindex([conditions[0], conditions[-1]])
        isotropy, error = (float(ends[column].iloc[1] - ends[column].iloc[0]) for column in ends)
        product = isotropy * error
        marks[str(name)] = SAME if product > 0 else OPPOSITE if product < 0 else ""
    return marks


def count_same(rows: pd.DataFrame, conditions: Sequence[str]) -> tuple[int, int]:
    """Return in how many pairs both quantities change in the same direction, and the number of pairs."""
    marks = [mark for _, part in rows.groupby("model") for mark in compare(part, conditions).values() if mark]
    return marks.count(SAME), len(marks)


PLOT = Plot(
    "One row per data set. Arrows lead from the first condition to the second, in isotropy and in error.",
    {"points": COLUMNS},
    draw,
)

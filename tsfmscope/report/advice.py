"""The section on the cost of choosing a model or context by isotropy, compared with other rules of choice."""

from __future__ import annotations

from typing import TYPE_CHECKING

import altair as alt

from tsfmscope.report import style
from tsfmscope.report.page import sections
from tsfmscope.report.page.sections import Figure, Section, build_table
from tsfmscope.report.page.texts import TEXTS
from tsfmscope.report.style import COLOURS, SYMBOLS, Chart
from tsfmscope.report.tables import Answer, require

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = ("measure", "grouping", "rule", "n", "times", "low", "high")
# Measure of the choice that the figure shows.
MEASURE = "zeta_adjusted_corrected"
CHOICES = {"model": "model", "context": "context", "model_and_context": "both at once"}
RULES = {
    "advised": "ζ′ nearest to its null",
    "validation": "smallest error on the window before",
    "largest_context": "largest context",
    "chance": "chance",
}
CAPTION = "NMSE divided by that of the best choice: geometric mean over data sets, with 95 % intervals."


def build_section(answer: Answer) -> Section:
    """Build the section; without a figure if there was nothing to choose between."""
    frame = require(answer, COLUMNS)
    rows = frame[(frame["measure"] == MEASURE) & frame["times"].notna()]
    figures: tuple[Figure, ...] = ()
    if len(rows):
        worst = rows.sort_values("times").iloc[-1]
        alt = (
            f"Points with intervals: NMSE divided by the best NMSE, for {rows['grouping'].nunique()} choices and "
            f"{rows['rule'].nunique()} rules; at most {worst['times']:.2f}, by {RULES[str(worst['rule'])]}."
        )
        figures = (Figure("advice", draw_regrets(rows), alt, CAPTION),)
    empty = "There was no choice: no data set has forecasts of several models or context lengths."
    return sections.build_section(
        "advice", answer, TEXTS["leads"]["advice"], figures=figures, table=build_table(frame), empty=empty
    )


def draw_regrets(rows: pd.DataFrame) -> Chart:
    """Draw the NMSE of each rule over the best's on a log axis, one point per rule and choice.

    rows: `COLUMNS` of one measure; low and high, drawn as whiskers, may be missing.
    """
    rules = [name for rule, name in RULES.items() if rule in set(rows["rule"])]
    named = rows.assign(name=rows["rule"].map(RULES), choice=rows["grouping"].map(CHOICES))
    tips = [f"{row.name}\n{row.times:.2f} times the best NMSE, {row.n} data sets" for row in style.iterate_rows(named)]
    places = {name: position for position, name in enumerate(RULES.values()) if name in rules}
    colours, symbols = ({name: values[at] for name, at in places.items()} for values in (COLOURS, SYMBOLS))
    values = named[["times", "low", "high"]].to_numpy(dtype=float).ravel()
    y = alt.Y("times:Q", **style.make_log_axis("NMSE ÷ best NMSE", values))
    base = alt.Chart(named.assign(tip=tips)).encode(
        x=alt.X("choice:N", title="choice", sort=list(CHOICES.values()), axis=alt.Axis(labelAngle=0)),
        xOffset=alt.XOffset("name:N", sort=rules), stroke=style.encode_stroke("name", colours),
    )  # fmt: skip
    fill, shape = style.encode_fill("name", colours), style.encode_shape("name", symbols)
    points = base.mark_point(size=80).encode(y=y, fill=fill, shape=shape, **style.encode_tip())
    return alt.layer(style.draw_whiskers(base, y, 1.5), points).properties(width=style.WIDTHS[1], height=280)

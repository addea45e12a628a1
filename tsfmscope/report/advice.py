"""The section on the cost of choosing a model or context by isotropy, compared with other rules of choice."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tsfmscope.report.charts.figures import COLOURS, SYMBOLS, apply_style
from tsfmscope.report.page import sections
from tsfmscope.report.page.html_table import build_table
from tsfmscope.report.page.sections import Figure, Section
from tsfmscope.report.tables import Answer, require

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

COLUMNS = ("measure", "grouping", "rule", "n", "times", "low", "high")
# Measure of the choice that the figure shows.
MEASURE = "zeta_adjusted_corrected"
CHOICES = {
    "model": "model",
    "context": "context",
    "model_and_context": "both at once",
}
RULES = {
    "advised": "ζ′ nearest to its null",
    "validation": "smallest error on the window before",
    "largest_context": "largest context",
    "chance": "chance",
}
LEAD = (
    "For each data set, the model and context length whose ζ′ is nearest to its null are chosen. Their NMSE is divided "
    "by that of the best choice in hindsight. Other rules choose by the error on the window before, the largest "
    "context, or at random. advice_over_it is the NMSE of this choice divided by that of the rule: below 1, this "
    "choice is better."
)
CAPTION = "NMSE divided by that of the best choice: geometric mean over data sets, with 95 % bootstrap intervals."


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
    return sections.build_section("advice", answer, LEAD, figures=figures, table=build_table(frame), empty=empty)


def draw_regrets(rows: pd.DataFrame) -> go.Figure:
    """Draw the NMSE of each rule over the best's on a log axis, one point per rule and choice.

    rows: `COLUMNS` of one measure; low and high, drawn as whiskers, may be missing.
    """
    import plotly.graph_objects as go

    figure = go.Figure()
    present = [name for name in CHOICES if name in set(rows["grouping"])]
    for position, (rule, name) in enumerate(RULES.items()):
        part = rows[rows["rule"] == rule]
        if part.empty:
            continue
        at = [present.index(grouping) + 0.16 * (position - 1.5) for grouping in part["grouping"]]
        middle, low, high = (part[column].to_numpy(dtype=float) for column in ("times", "low", "high"))
        figure.add_trace(
            go.Scatter(
                x=at,
                y=middle,
                mode="markers",
                name=name,
                marker={"symbol": SYMBOLS[position], "size": 10, "color": COLOURS[position]},
                error_y={"array": high - middle, "arrayminus": middle - low, "thickness": 1.5, "width": 4},
                customdata=part["n"].to_numpy(),
                hovertemplate=f"{name}<br>%{{y:.2f}} times the best NMSE, %{{customdata}} data sets<extra></extra>",
            )
        )
    ticks = {"tickvals": list(range(len(present))), "ticktext": [CHOICES[name] for name in present]}
    figure.update_xaxes(title_text="choice", range=[-0.5, len(present) - 0.5], **ticks)
    figure.update_yaxes(title_text="NMSE ÷ best NMSE", type="log")
    return apply_style(figure)

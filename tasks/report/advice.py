"""The section on the cost of choosing a model or context by isotropy, compared with other rules of choice."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tsfmscope.tasks.report.charts.figures import COLOURS, SYMBOLS, apply_style
from tsfmscope.tasks.report.page.html_table import html_table
from tsfmscope.tasks.report.page.sections import Figure, Section
from tsfmscope.tasks.report.page.sections import section as section_of
from tsfmscope.tasks.report.tables import Answer, require

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

COLUMNS = ("measure", "grouping", "rule", "n", "times", "low", "high")
# Default measure of `tsfmscope recommend`.
MEASURE = "zeta_adjusted_corrected"
CHOICES = {
    "model": "model",
    "context": "context",
    "model_and_context": "both at once",
}
RULES = {
    "advised": "most isotropic (ζ′ less its null mean)",
    "validation": "least error on the window before",
    "largest_context": "largest context",
    "chance": "chance",
}
LEAD = (
    "Of the models and context lengths of a data set the most isotropic one is taken, its NMSE held against that of "
    "the best in hindsight. Beside it: what has the least error on the window before, the largest context, and chance. "
    "advice_over_it is the advice's NMSE over the rule's; below 1 the advice is better. `tsfmscope recommend` gives it."
)
CAPTION = "Geometric mean over data sets of NMSE over the best's, with 95 % bootstrap intervals; 1 is the best."


def section(answer: Answer) -> Section:
    """Build the section; without a figure if there was nothing to choose between."""
    frame = require(answer, COLUMNS)
    rows = frame[(frame["measure"] == MEASURE) & frame["times"].notna()]
    drawn: tuple[Figure, ...] = ()
    if len(rows):
        worst = rows.sort_values("times").iloc[-1]
        alt = (
            f"Points with intervals: NMSE over the best's for {rows['grouping'].nunique()} choices and "
            f"{rows['rule'].nunique()} rules; at most {worst['times']:.2f}, by {RULES[str(worst['rule'])]}."
        )
        drawn = (Figure("advice", regrets(rows), alt, CAPTION),)
    empty = "Nothing could be chosen: it needs several models or contexts on the same data sets."
    return section_of("advice", answer, LEAD, drawn=drawn, table=html_table(frame), empty=empty)


def regrets(rows: pd.DataFrame) -> go.Figure:
    """Draw the NMSE of each rule over the best's on a log axis, one point per rule and choice.

    rows: `COLUMNS` of one measure; low and high, drawn as whiskers, may be missing.
    """
    import plotly.graph_objects as go

    figure = go.Figure()
    present = [name for name in CHOICES if name in set(rows["grouping"])]
    for place, (rule, name) in enumerate(RULES.items()):
        part = rows[rows["rule"] == rule]
        if part.empty:
            continue
        at = [present.index(grouping) + 0.16 * (place - 1.5) for grouping in part["grouping"]]
        middle, low, high = (part[column].to_numpy(dtype=float) for column in ("times", "low", "high"))
        figure.add_trace(
            go.Scatter(
                x=at,
                y=middle,
                mode="markers",
                name=name,
                marker={"symbol": SYMBOLS[place], "size": 10, "color": COLOURS[place]},
                error_y={"array": high - middle, "arrayminus": middle - low, "thickness": 1.5, "width": 4},
                customdata=part["n"].to_numpy(),
                hovertemplate=f"{name}<br>%{{y:.2f}} times the best's NMSE, %{{customdata}} data sets<extra></extra>",
            )
        )
    ticks = {"tickvals": list(range(len(present))), "ticktext": [CHOICES[name] for name in present]}
    figure.update_xaxes(title_text="what is chosen", range=[-0.5, len(present) - 0.5], **ticks)
    figure.update_yaxes(title_text="NMSE over the best's (1: the best)", type="log")
    return apply_style(figure)

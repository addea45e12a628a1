"""Figures of NMSE against isotropy with one panel per domain (Shelim et al. 2025, Figs. 3 and 7).

Studies of the paper's figures show the printed |ζ′|. Other studies show |ζ′ − its null mean|, because the
main correlation of the report uses ζ′ minus its null mean.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import altair as alt
import numpy as np

from tsfmscope.report import panel_letters
from tsfmscope.report.charts import style
from tsfmscope.report.charts.figures import (
    CORRECTED,
    ERROR_TITLE,
    ISOTROPY_TITLES,
    PRINTED,
    describe_points,
    mark_models,
    select_drawable,
)
from tsfmscope.report.charts.style import Chart

if TYPE_CHECKING:
    import pandas as pd

# Marks of the first data sets of a panel as characters, for as many as its title names.
GLYPHS = "●○"
# Longest name of a data set in a title, and the part of its end that is kept, in characters.
NAME, TAIL = 22, 15
HEIGHT = 165
# Measure -> column of its rank correlation with the error in the data set and condition.
RHO = {CORRECTED: "rho_corrected", PRINTED: "rho_printed"}


def draw_by_domain(
    frame: pd.DataFrame, models: Sequence[str], conditions: Sequence[str], *, of_paper: bool = True
) -> Chart:
    """Draw one point per model and data set.

    frame: model, dataset, domain, paper, condition, the measure, nmse; rows that log axes cannot show are
    left out.
    models: the models of the whole page, which determine colours and symbols, so that a model looks the same
    everywhere.
    conditions: in the study's order; with more than one, each has its own dash.
    of_paper: as in `place_points`.

    The first data set of a domain is filled and all others are open; a line joins those of a model. The title of a
    panel names its data sets with their ρ, unless a domain has more than two of them.
    """
    measure, count = choose_measure(of_paper), frame["model"].nunique()
    rows = describe_points(place_points(frame, of_paper=of_paper), measure)
    rows = rows.assign(is_filled=rows["number"] == 1)
    shown = [name for name in conditions if name in set(rows["condition"])]
    x, y = style.log_axis(ISOTROPY_TITLES[measure], rows["isotropy"]), style.log_axis(ERROR_TITLE, rows["nmse"])
    columns, panels = style.choose_columns(rows["panel"].nunique(), 3), []
    for _, part in rows.groupby("panel", sort=False):
        base = alt.Chart(part).encode(x=alt.X("isotropy:Q", **x), y=alt.Y("nmse:Q", **y))
        links = base.mark_line(strokeWidth=1, opacity=0.45, aria=False).encode(
            stroke=alt.Stroke("model:N"), strokeDash=style.dash("condition", shown), order="number:Q"
        )
        drawn = alt.layer(links, mark_models(base, rows, models))
        panels.append(style.name_panel(drawn, _title(part, shown, RHO[measure], count), columns, HEIGHT))
    return style.arrange(panels, columns)


def _title(rows: pd.DataFrame, conditions: Sequence[str], column: str, count: int) -> str:
    """Return the title of a panel: its domain, then one line per data set with its mark, name and ρ.

    column: the column with ρ; without it, or where it is missing, there is none. count: number of models; a
    data set with fewer points has their number. More data sets than GLYPHS are counted only.
    """
    lines, numbers = [str(rows["panel"].iloc[0])], sorted(rows["number"].unique().tolist())
    if max(numbers) > len(GLYPHS):
        return f"{lines[0]}\n{len(numbers)} data sets"
    for number in numbers:
        part, glyph = rows[rows["number"] == number], GLYPHS[number - 1]
        words = [f"{glyph} {style.shorten_name(str(part['dataset'].iloc[0]), NAME, TAIL)}"]
        found = [part.loc[part["condition"] == name, column].dropna() for name in conditions if column in part]
        if rhos := [f"{round(values.iloc[0], 1) + 0:.1f}".replace("-", "−") for values in found if len(values)]:
            words.append(f"ρ = {' and '.join(rhos)}")
        if len(part) < count * len(conditions):
            words.append(f"n = {len(part)}")
        lines.append(", ".join(words))
    return "\n".join(lines)


def choose_measure(of_paper: bool) -> str:
    """Return the x axis' column: the printed ζ′ for a figure of the paper, else ζ′ minus its null mean."""
    return PRINTED if of_paper else CORRECTED


def place_points(frame: pd.DataFrame, *, of_paper: bool = True) -> pd.DataFrame:
    """Return the drawable rows, sorted by panel, with columns `panel`, `number` and `order`.

    panel: letter and domain. number: of the data set in its domain, from 1. order: position of the panel.
    Letters and numbers are computed from all rows, so that a panel keeps its letter where some points cannot
    be drawn.

    of_paper: whether the study reproduces a figure of the paper; the panels then have the paper's letters.
    """
    return select_drawable(number_datasets(frame, of_paper=of_paper), choose_measure(of_paper))


def number_datasets(frame: pd.DataFrame, *, of_paper: bool = True) -> pd.DataFrame:
    """Return all rows with the columns that `place_points` adds, in its order."""
    named = frame.assign(domain=frame["domain"].fillna("").replace("", panel_letters.NO_DOMAIN))
    letters = panel_letters.assign_letters(named["domain"], of_paper=of_paper)
    domains = dict(zip(named["dataset"], named["domain"], strict=True))
    papers = {d: p if isinstance(p, str) else None for d, p in zip(named["dataset"], named["paper"], strict=True)}
    panel = [f"{letters[domain]} · {domain}" for domain in named["domain"]]
    order = named["domain"].map({domain: position for position, domain in enumerate(letters)})
    rows = named.assign(
        panel=panel, number=named["dataset"].map(panel_letters.assign_numbers(domains, papers)), order=order
    )
    return rows.sort_values(["order", "model", "number", "condition"])


def drop_unplottable(values: pd.Series) -> pd.Series:
    """Return the values with NaN where there is no logarithm."""
    numbers = values.astype(float)
    return numbers.where(np.isfinite(numbers) & (numbers > 0))

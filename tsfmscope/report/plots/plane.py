"""Embedded tokens on two singular directions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import altair as alt
import numpy as np

from tsfmscope.report import style
from tsfmscope.report.page.sections import Figure
from tsfmscope.report.plots import Plot
from tsfmscope.report.style import Chart
from tsfmscope.report.tables import StudyTables

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = ("model", "x_axis", "dataset", "condition", "token", "type", "value", "x", "y")
# Colours of the tokens on a plane, from the smallest to the largest value.
ORDER = [colour for _, colour in style.ORDER]


def draw(study: StudyTables, models: Sequence[str]) -> Iterator[Figure]:
    """Draw one panel per model, data set and condition."""
    frame = study.rows("planes", COLUMNS)
    if frame.empty:
        return
    panels = len(frame.drop_duplicates(["model", "dataset", "condition"]))
    words = f"Scatter plots of embedded tokens on two singular directions, {panels} panels, {len(frame):,} points."
    caption = (
        "Colour: the value that a token stands for, else its id, from violet (smallest) to orange (largest). Tokens "
        "with neither are blue."
    )
    yield Figure("planes", draw_planes(frame), words, caption)


def draw_planes(frame: pd.DataFrame) -> Chart:
    """Draw embedded tokens on two singular directions: one panel per model, data set and condition.

    frame: COLUMNS. Colours follow the order of the tokens' values; without values
    that of their ids; without ids all tokens have one colour.
    """
    several = frame.groupby("model")["dataset"].nunique().max() > 1
    cells = frame.sort_values(["x_axis", "model", "dataset", "token"], kind="stable")
    groups = list(cells.groupby(["model", "dataset", "condition"], sort=False, dropna=False))
    columns, panels = style.choose_columns(len(groups)), []
    bare, scale = alt.Axis(labels=False, ticks=False, grid=False), alt.Scale(zero=False, padding=6)
    colour = alt.Fill("rank:Q", scale=alt.Scale(domain=[0, 1], range=ORDER, type="linear"), legend=None)
    for (model, dataset, _), part in groups:
        values = part["value"].fillna(part["type"].astype("Float64")).astype(float)
        rows = part.assign(rank=rank_tokens(part), tip=[f"{value:.4g}" for value in values])
        points = alt.Chart(rows[["x", "y", "rank", "tip"]]).mark_point(strokeWidth=0, size=14).encode(
            x=alt.X("x:Q", title="1st singular direction", axis=bare, scale=scale),
            y=alt.Y("y:Q", title="2nd singular direction", axis=bare, scale=scale),
            fill=colour, **style.encode_tip(),
        )  # fmt: skip
        panels.append(style.name_panel(points, f"{model}\n{dataset}" if several else str(model), columns, 150))
    return style.arrange_panels(panels, columns)


def rank_tokens(part: pd.DataFrame) -> np.ndarray:
    """Return the dense ranks of the tokens by value, else by id, scaled to [0, 1]: [n], float32.

    Tokens without the chosen value or id get 0. Without any value or id, all tokens get 0.25.
    """
    for name in ("value", "type"):
        if part[name].notna().any():
            position = part[name].astype("Float64").rank(method="dense")
            span = float(position.max()) - 1
            return ((position - 1) / span if span else position * 0).fillna(0).to_numpy(np.float32)
    return np.full(len(part), 0.25, np.float32)


PLOT = Plot(
    "Embedded tokens on their two leading singular directions, one panel per model.",
    {"planes": COLUMNS},
    draw,
    topic="rank",
)

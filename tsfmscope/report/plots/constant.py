"""Singular values of every layer's input for a constant series."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import altair as alt

from tsfmscope.report import style
from tsfmscope.report.page.sections import Figure
from tsfmscope.report.plots import Plot
from tsfmscope.report.plots.spectrum import INDEX, RATIO
from tsfmscope.report.style import Chart, format_power
from tsfmscope.report.tables import StudyTables

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = ("model", "stack", "layer", "tokens", "floor", "j", "ratio")
# Tolerance of the rank in the caption.
EPSILON = 1e-2
SPECIAL = {"with_special": "with special tokens", "valued": "value tokens only"}


def draw(study: StudyTables, models: Sequence[str]) -> Iterator[Figure]:
    """Draw one panel per model, stack and kind of tokens."""
    frame = study.rows("constant", COLUMNS)
    if frame.empty:
        return
    words = "Line charts of relative singular values of every layer's input for a constant series, one line per layer."
    deepest = frame[frame["layer"] == frame["layer"].max()]
    ranks = deepest[deepest["ratio"] > EPSILON].groupby(["model", "stack", "tokens"])["j"].max()
    texts = [f"{model} {stack}, {SPECIAL.get(t, t)}: {rank}" for (model, stack, t), rank in ranks.items()]
    caption = f"Values above the rounding error. Rank at tolerance {format_power(-2)} after the last layer:"
    caption += f" {'; '.join(texts)}."
    yield Figure("constant", draw_constant(frame), words, caption)


def draw_constant(frame: pd.DataFrame) -> Chart:
    """Draw the relative singular values of every layer's input for a constant series: one line per layer.

    frame: COLUMNS. There is one panel per model, stack and kind of tokens; the
    legend numbers layers from 1.
    """
    cells = set(zip(frame["model"], frame["stack"], frame["tokens"], strict=True))
    # One data set can have several rounding errors.
    rows = frame.groupby(["model", "stack", "tokens", "layer", "j"], as_index=False)["ratio"].max()
    rows = rows.assign(layer=rows["layer"] + 1)
    texts = [f"layer {row.layer}, index {row.j}\n{row.ratio:.3g}" for row in style.iterate_rows(rows)]
    rows, colours = rows.assign(tip=texts), style.order_colours(style.distinct_values(rows, "layer"))
    panels = []
    for model, stack, tokens in sorted(cells, key=lambda cell: (*cell[:2], cell[2] != "with_special")):
        part = rows[(rows["model"] == model) & (rows["stack"] == stack) & (rows["tokens"] == tokens)]
        base = alt.Chart(part).encode(
            x=alt.X("j:Q", title=INDEX),
            y=alt.Y("ratio:Q", **style.make_log_axis(RATIO, rows["ratio"])),
            stroke=style.encode_stroke("layer", colours, "input of layer"),
        )
        points = base.mark_point(size=20).encode(fill=style.encode_fill("layer", colours), **style.encode_tip())
        drawn = alt.layer(base.mark_line(aria=False), points)
        panels.append(style.name_panel(drawn, f"{model}\n{stack}, {SPECIAL.get(tokens, tokens)}", 2, 200))
    return style.arrange_panels(panels, 2)


PLOT = Plot(
    "The tokens of a constant series are all equal, a matrix of rank 1. With special tokens the rank is higher.",
    {"constant": COLUMNS},
    draw,
    topic="rank",
)

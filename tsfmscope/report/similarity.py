"""Charts of `compare`: heat maps of the similarity of layers, and how far each layer moved."""

from __future__ import annotations

import altair as alt
import pandas as pd

from tsfmscope.report import style
from tsfmscope.report.style import COLOURS, WIDTHS, Chart

# Sides of a cell, height of the panel of moved layers, and the largest number of layers in a row of three panels.
CELL, HEIGHT, ABREAST = alt.Step(32), 200, 24
# Similarity above which a number is white. The colour of texts is legible on paler cells, on a light and a dark page.
DARK = 0.85


def draw_similarity(rows: pd.DataFrame) -> Chart:
    """Draw a heat map of CKA for each block of pairs of layers, with the values in the cells.

    rows: block, model_a, model_b, a and b (names of the layers), cka, cka_low, cka_high, procrustes. The darker a cell,
    the more similar the layers; a cell without a value has a dash.
    """
    panels = []
    for block, part in rows.groupby("block"):
        texts = [style.format_signed(value) if style.is_number(value) else "–" for value in part["cka"]]
        tips = [
            f"{row.model_a} {row.a} · {row.model_b} {row.b}\n"
            f"CKA {row.cka:.4g} [{row.cka_low:.4g}, {row.cka_high:.4g}]\nProcrustes {row.procrustes:.4g}"
            for row in style.iterate_rows(part)
        ]
        cells = part[["a", "b"]].assign(text=texts, tip=tips, shade=part["cka"].fillna(0).clip(0, 1))
        titles = [f"layer of {style.shorten_name(part[f'model_{x}'].iloc[0], style.NAME, style.TAIL)}" for x in "ab"]
        axis = alt.Axis(grid=False, ticks=False, domain=False, labelAngle=0)
        base = alt.Chart(cells).encode(
            x=alt.X("b:N", title=titles[1], axis=axis, sort=None),
            y=alt.Y("a:N", title=titles[0], axis=axis, sort=[*part["a"].unique()][::-1]),
        )
        shade = alt.FillOpacity("shade:Q", scale=alt.Scale(domain=[0, 1], range=[0, 1]), legend=None)
        colour = alt.condition(alt.datum.shade > DARK, alt.value("white"), alt.value(style.INK))
        squares = base.mark_rect(fill=COLOURS[0]).encode(fillOpacity=shade, **style.encode_tip())
        numbers = base.mark_text(aria=False).encode(text="text:N", color=colour)
        panels.append(alt.layer(squares, numbers).properties(title=f"debiased CKA, {block}", width=CELL, height=CELL))
    n_layers = sum(part["b"].nunique() for _, part in rows.groupby("block"))
    return alt.concat(*panels, columns=3 if n_layers <= ABREAST else 1)


def draw_moved(rows: pd.DataFrame) -> Chart:
    """Draw 1 - CKA of each layer in both models, with its interval.

    rows: name, moved, low, high, procrustes.
    """
    tips = [
        f"layer {row.name}\n1 − CKA {row.moved:.3g} [{row.low:.3g}, {row.high:.3g}]\nProcrustes {row.procrustes:.3g}"
        for row in style.iterate_rows(rows)
    ]
    axis = alt.Axis(grid=False, labelAngle=0)
    x = alt.X("name:N", title="layer (0: embedding, ′: after final norm)", axis=axis, sort=None)
    y = alt.Y("moved:Q", title="1 − CKA (0: the same)")
    base = alt.Chart(rows.assign(tip=tips)).transform_filter("isValid(datum.moved)").encode(x=x)
    points = base.mark_point(stroke=COLOURS[0], fill=COLOURS[0]).encode(y=y, **style.encode_tip())
    whiskers = style.draw_whiskers(base, y, 1.2, color=COLOURS[0])
    return alt.layer(whiskers, points).properties(width=WIDTHS[1], height=HEIGHT)

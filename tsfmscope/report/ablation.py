"""Heat map of an ablation: what the forecast loses without each part of each layer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import altair as alt
import numpy as np

from tsfmscope.report import style
from tsfmscope.report.style import Chart

if TYPE_CHECKING:
    import pandas as pd

# Width and height of a cell in pixels.
CELL = (46, 20)
# Ratio at which the colour is darkest; the colour of smaller changes is in proportion to the log ratio.
STRONGEST = 1.5
# Colours of a smaller and of a larger error, and of no change.
BETTER, SAME, WORSE = "#2f86c4", "#f4f2ee", "#d1495b"


def draw_parts(rows: pd.DataFrame) -> Chart:
    """Draw the ratios as a heat map: rows are parts, columns layers, panels stacks and ways.

    rows: stack, layer, kind, name, way, ratio, upper, can_go. Colour: the logarithm of the ratio, cut at STRONGEST and
    its inverse. A frame: the part can go. Directions of all layers stand in the order of their groups.
    """
    # Groups of directions have other numbers in each layer.
    order = rows.groupby(["stack", "layer", "way"]).cumcount() + len(rows) * (rows["kind"] == "exit")
    group = rows.groupby(["stack", "layer", "way", "kind"]).cumcount() + 1
    names = rows["name"].where(rows["kind"] != "directions", "directions, group " + group.astype(str))
    tips = [
        f"{row.name}, layer {row.layer}\nratio {row.ratio:.4f}, upper limit {row.upper:.4f}"
        for row in style.iterate_rows(rows)
    ]
    limit = float(np.log(STRONGEST))
    strength = np.clip(np.log(rows["ratio"]), -limit, limit)
    cells = rows.assign(part=names, tip=tips, text=rows["ratio"].map("{:.2f}".format), strength=strength, order=order)
    scale, panels = alt.Scale(domain=[-limit, 0, limit], range=[BETTER, SAME, WORSE]), []
    for (stack, way), own in cells.groupby(["stack", "way"], sort=False):
        part_names = own.sort_values("order", kind="stable")["part"].drop_duplicates().tolist()
        x = alt.X("layer:O", title="layer", axis=alt.Axis(labelAngle=0, ticks=False, domain=False))
        base = alt.Chart(own).encode(x=x, y=style.make_rows(part_names, field="part"))
        ink = alt.condition("abs(datum.strength) > 0.3", alt.value(style.PAPER), alt.value(style.INK))
        panel = alt.layer(
            base.mark_rect().encode(color=alt.Color("strength:Q", scale=scale, legend=None), **style.encode_tip()),
            base.transform_filter("datum.can_go").mark_rect(fill=None, stroke=style.INK, aria=False),
            base.mark_text(aria=False).encode(text="text:N", color=ink),
        )
        title = f"{stack}, {way}: WQL / WQL of the intact model"
        panels.append(panel.properties(width=alt.Step(CELL[0]), height=alt.Step(CELL[1]), title=title))
    together: Chart = alt.vconcat(*panels).resolve_scale(x="independent", y="independent")
    return together

"""Plots of a certificate, and of the search for the smallest size."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import altair as alt

from tsfmscope.report import style
from tsfmscope.report.style import COLOURS, GREY, Chart, make_rows

if TYPE_CHECKING:
    import pandas as pd

# Height of a row and width of the plot in pixels.
ROW, WIDTH = 17, 330
# The axis contains the upper limit if it is less than so many times the largest ratio.
NEAR = 1.3


def draw_certificate(
    rows: pd.DataFrame, *, mean: float, upper: float, margin: float, worst: float, units: str
) -> Chart:
    """Draw the sorted ratios of tasks or groups, and below them the geometric mean with its upper limit.

    rows: name, horizon, ratio. units: number and kind of the units of the mean. mean, upper: ratios; an upper limit far
    above all ratios is cut at the edge, and an infinite ratio is drawn there. Lines: 1, the margin of the mean, and the
    limit of each task.
    """
    rows = rows.sort_values(["ratio", "name"], ascending=[False, False])
    finite = [ratio for ratio in (*rows["ratio"], mean, margin, worst, 1.0) if math.isfinite(ratio)]
    near = [*finite, upper] if upper < NEAR * max(finite) else finite
    x_axis = style.make_log_axis("WQL, small model / base", near)
    edge = x_axis["scale"].domain[1]
    names, mean_name = [f"{row.name}, {row.horizon}" for row in style.iterate_rows(rows)], f"mean of {units}"
    lines = {f"margin of the mean, {margin:g}": COLOURS[0], f"limit of a task or group, {worst:g}": COLOURS[1]}
    texts = [f"{name}\nratio {ratio:.4f}" for name, ratio in zip(names, rows["ratio"], strict=True)]
    marks = rows.assign(row=names, tip=texts, is_failed=rows["ratio"] > worst, ratio=rows["ratio"].clip(upper=edge))
    average = {
        "row": mean_name, "ratio": min(mean, edge), "upper": min(upper, edge),
        "tip": f"mean {mean:.4f}, upper 95 % limit {upper:.4f}",
    }  # fmt: skip
    x, y = alt.X("ratio:Q", **x_axis), make_rows([*names, mean_name], field="row", bold=mean_name)
    of_mean = alt.Chart(alt.InlineData([average])).encode(y=y)
    limits = [{"ratio": ratio, "line": name} for ratio, name in zip((margin, worst), lines, strict=True)]
    chart = alt.layer(
        style.draw_guide(x=1),
        alt.Chart(alt.InlineData(limits)).mark_rule(strokeDash=[6, 4], strokeWidth=1.5, aria=False).encode(
            x=x, stroke=style.encode_stroke("line", lines)
        ),
        of_mean.mark_rule(color=GREY, strokeWidth=3, aria=False).encode(x=x, x2="upper:Q"),
        of_mean.mark_point(shape="diamond", fill=GREY, stroke=GREY, size=130).encode(x=x, **style.encode_tip()),
        alt.Chart(marks).mark_point(fill=GREY, stroke=GREY).encode(
            x=x, y=y, fillOpacity=style.open_if("datum.is_failed"), **style.encode_tip()
        ),
    )  # fmt: skip
    return chart.properties(width=WIDTH, height=alt.Step(ROW))


def draw_sizes(rows: pd.DataFrame, *, margin: float) -> Chart:
    """Draw the mean ratio of WQL and its upper limit against the share of the file, by size.

    rows: share, ratio, upper, largest, passes; from large to small. A cross: a size that failed. A diamond: the last
    one that passed, which was chosen. Line: the margin of the upper limit.
    """
    texts = [
        f"{100 * row.share:.1f} % of the bytes\nmean {row.ratio:.4f}, upper limit {row.upper:.4f}, "
        f"largest {row.largest:.4f}"
        for row in style.iterate_rows(rows)
    ]
    chosen = rows.index[rows["passes"]].max()
    kinds = ["failed" if not passes else "passed" for passes in rows["passes"]]
    marks = rows.assign(tip=texts, size=kinds)
    marks.loc[chosen, "size"] = "smallest that passed"
    symbols = {"passed": "circle", "smallest that passed": "diamond", "failed": "cross"}
    colours = dict(zip(symbols, (GREY, COLOURS[0], COLOURS[1]), strict=True))
    values = [*rows["ratio"], *rows["upper"], margin, 1.0]
    x = alt.X("share:Q", title="file, share of the original's bytes", scale=style.scale_from_zero(rows["share"]))
    y = alt.Y("ratio:Q", **style.make_log_axis("WQL, small model / base", values))
    base = alt.Chart(marks).encode(x=x)
    chart = alt.layer(
        style.draw_guide(y=1),
        style.draw_guide(y=margin, dashes=(6, 4)),
        base.mark_rule(color=GREY, aria=False).encode(y=y, y2="upper:Q"),
        base.mark_point(size=90).encode(
            y=y, shape=style.encode_shape("size", symbols), fill=style.encode_fill("size", colours),
            stroke=style.encode_stroke("size", colours), **style.encode_tip(),
        ),
    )  # fmt: skip
    return chart.properties(width=WIDTH, height=WIDTH * 0.6)

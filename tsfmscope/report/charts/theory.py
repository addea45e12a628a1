"""Figures of Yu et al. 2026, Appendix J, and of the share of each bound that is used up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import altair as alt

from tsfmscope.report.charts import style
from tsfmscope.report.charts.style import COLOURS, GREY, SYMBOLS, Chart

if TYPE_CHECKING:
    import pandas as pd

# Height of a panel, and of one statement in the plot of the bounds, in pixels.
HEIGHT, ROW = 260, 19
# Factor between the sparse and the dense sketch at one number of heads.
DODGE = 1.05
# Least distance of labelled points in the left panel, as a share of its width.
APART = 0.05
ERROR, MISSED = "error of the attention output", "share of the row space missed"
X_TITLES = ("first dropped singular value", "width of the model")
INDEX = "index of the singular value, largest first"
# Smaller ratios are drawn at this value.
LOWEST = 1e-3


def draw_compression(frame: pd.DataFrame) -> Chart:
    """Draw Fig. 15: error against the first dropped singular value and against the width, with slopes 1 and ½."""
    panels = []
    for name, position, slope in (("J.1 rank", 0, 1.0), ("J.1 width", 1, 0.5)):
        part = frame[frame["experiment"] == name].sort_values("x")
        middle = len(part) // 2
        # The line of the slope stands below the points.
        heights = (
            0.4 * part["y"].iloc[middle] * (part["x"] / part["x"].iloc[middle]) ** slope if len(part) else part["y"]
        )
        line = part.assign(y=heights)
        x = alt.X("x:Q", **style.log_axis(X_TITLES[position], part["x"], sorted(set(part["x"])) if position else ()))
        y = alt.Y("y:Q", **style.log_axis(ERROR, [*part["low"], *part["high"], *line["y"]]))
        label = line.iloc[middle : middle + 1].assign(text=f"slope {'1' if slope == 1 else '½'}")
        drawn = alt.layer(
            alt.Chart(line).mark_line(color=GREY, strokeWidth=1.5, strokeDash=[6, 4], aria=False).encode(x=x, y=y),
            alt.Chart(label)
            .mark_text(dx=8, dy=10, align="left", color=GREY, aria=False)
            .encode(x=x, y=y, text="text:N"),
            *_draw_medians(part, x, y, COLOURS[position], SYMBOLS[position]),
        )
        panels.append(style.name_panel(drawn, ("error by rank", "error by width")[position], 2, HEIGHT))
    return alt.concat(*panels, columns=2)


def draw_sketching(frame: pd.DataFrame) -> Chart:
    """Draw Fig. 16: singular values of X with the errors of sketches, and these errors against the number of heads.

    On the left, the median error of h heads stands at the index whose singular value it equals.
    """
    spectrum = frame[frame["experiment"] == "J.2 spectrum"].sort_values("x")
    sparse, index = (
        frame[frame["experiment"] == f"J.2 {name}"].sort_values("x") for name in ("sparse distance", "sparse")
    )
    points = sparse.assign(x=index["y"].to_numpy(), text=[f"{int(h)} head{'' if h == 1 else 's'}" for h in index["x"]])
    last = float(spectrum["x"].max()) if len(spectrum) else 1.0
    # The first points lie close together: those nearer than APART to the last labelled one have no label.
    free, is_named = -1.0, []
    for at in points["x"]:
        is_named.append(at >= free)
        free = at + APART * last if at >= free else free
    x = alt.X("x:Q", title=INDEX, scale=alt.Scale(domain=[0, 1.15 * last], nice=False))
    y = alt.Y("y:Q", **style.log_axis("singular value of X", [*spectrum["y"], *sparse["y"]]))
    marks = alt.Chart(points.assign(tip=points["text"])).encode(x=x, y=y)
    left = alt.layer(
        alt.Chart(spectrum).mark_line(color=GREY, aria=False).encode(x=x, y=y),
        marks.mark_point(fill=COLOURS[0], stroke=COLOURS[0]).encode(**style.tip()),
        alt.Chart(points[is_named]).mark_text(dx=8, dy=-5, align="left", color=COLOURS[0], aria=False).encode(
            x=x, y=y, text="text:N"
        ),
    )  # fmt: skip
    both = frame[frame["experiment"].isin(["J.2 sparse distance", "J.2 dense distance"])]
    kinds = {f"{kind} sketch": COLOURS[position] for position, kind in enumerate(("sparse", "dense"))}
    x = alt.X("x:Q", **style.log_axis("number of heads", both["x"], sorted({float(at) for at in both["x"]})))
    y = alt.Y("y:Q", **style.log_axis(MISSED, [*both["low"], *both["high"]]))
    layers = []
    for position, kind in enumerate(("sparse", "dense")):
        away = frame[frame["experiment"] == f"J.2 {kind} distance"].sort_values("x")
        # The two coincide, so they stand side by side.
        away = away.assign(x=away["x"].astype(float) * DODGE ** (2 * position - 1), kind=f"{kind} sketch")
        drawn = _draw_medians(away, x, y, COLOURS[position], SYMBOLS[position])
        layers += [drawn[0], drawn[1].encode(stroke=style.stroke("kind", kinds)), drawn[2]]
    panels = [
        style.name_panel(left, "errors as singular values of X", 2, HEIGHT),
        style.name_panel(alt.layer(*layers), "errors by number of heads", 2, HEIGHT),
    ]
    return alt.concat(*panels, columns=2)


def draw_flow(frame: pd.DataFrame) -> Chart:
    """Draw Fig. 17: relative singular values of X, and of MH-Attention(X) + X for every number of heads."""
    spectra = frame[frame["experiment"] == "J.3 spectrum"].sort_values(["heads", "x"])
    numbers = sorted({int(heads) for heads in spectra["heads"]})
    names = {heads: f"{heads} head{'' if heads == 1 else 's'}" if heads else "input X" for heads in numbers}
    colours = style.order_colours([names[heads] for heads in numbers if heads])
    colours = {name: colours.get(name, GREY) for name in names.values()}
    rows = spectra.assign(name=spectra["heads"].astype(int).map(names), is_input=spectra["heads"] == 0)
    return (
        alt.Chart(rows)
        .mark_line()
        .encode(
            x=alt.X("x:Q", title=INDEX),
            y=alt.Y("y:Q", **style.log_axis("singular value ÷ largest", rows["y"])),
            stroke=style.stroke("name", colours),
            strokeDash=alt.condition("datum.is_input", alt.value([6, 4]), alt.value([1, 0])),
            **style.tip("name"),
        )
        .properties(width=400, height=HEIGHT)
    )


def draw_ratios(frame: pd.DataFrame) -> Chart:
    """Draw the share of each bound that random instances use up: median and largest ratio, with a line at 1.

    frame: experiment, form, n, violations, ratio_median, ratio_largest. One row per statement and form,
    sorted by the largest ratio. Filled: printed; open: repaired.
    """
    rows = frame.sort_values(["ratio_largest", "experiment"], ascending=[False, True])
    names, texts = [], []
    for row in style.each_row(rows):
        failed = f": {row.violations:,} of {row.n:,} fail" if row.violations else ""
        names.append(f"{row.experiment}, {row.form}{failed}")
        texts.append(f"{row.experiment}, {row.form}\n{row.violations:,} of {row.n:,} instances fail")
    rows = rows.assign(name=names, text=texts)
    both = rows.melt(["name", "text", "form"], ["ratio_median", "ratio_largest"], "kind", "ratio")
    both = both.assign(
        kind=both["kind"].str.removeprefix("ratio_"),
        tip=[f"{text}\n{ratio:.3g} of the bound" for text, ratio in zip(both["text"], both["ratio"], strict=True)],
        ratio=both["ratio"].astype(float).clip(lower=LOWEST),
    )
    kinds = {"median": COLOURS[0], "largest": COLOURS[1]}
    axis = alt.Axis(ticks=False, domain=False, grid=False)
    points = alt.Chart(both).mark_point().encode(
        x=alt.X("ratio:Q", **style.log_axis("share of the bound that is used up; beyond 1 it fails", both["ratio"])),
        y=alt.Y("name:N", title=None, scale=alt.Scale(domain=names), axis=axis),
        stroke=style.stroke("kind", kinds),
        fill=style.fill("kind", kinds),
        fillOpacity=alt.condition("datum.form == 'printed'", alt.value(1), alt.value(0)),
        size=alt.condition("datum.kind == 'median'", alt.value(30), alt.value(80)),
        **style.tip(),
    )  # fmt: skip
    return alt.layer(style.guide(x=1, dashes=(6, 4)), points).properties(width=430, height=alt.Step(ROW))


def _draw_medians(part: pd.DataFrame, x: alt.X, y: alt.Y, colour: str, symbol: str) -> Sequence[alt.Chart]:
    """Draw the median over seeds as a line with marks, and the range as whiskers."""
    texts = [f"{row.x:.3g}\n{row.y:.3g} ({row.low:.3g} to {row.high:.3g})" for row in style.each_row(part)]
    base = alt.Chart(part.assign(tip=texts)).encode(x=x)
    return (
        base.mark_rule(color=colour, aria=False).encode(y=style.follow(y, "low"), y2="high:Q"),
        base.mark_line(color=colour, aria=False).encode(y=y),
        base.mark_point(shape=symbol, fill=colour, stroke=colour).encode(y=y, **style.tip()),
    )  # fmt: skip

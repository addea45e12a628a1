"""Accuracy and overlap against size, one colour and symbol per method, next to the paper's numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import altair as alt
import numpy as np

from tsfmscope.compression.options import METHODS as COMPRESSION_METHODS
from tsfmscope.report import style
from tsfmscope.report.page.sections import Figure
from tsfmscope.report.plots import Plot
from tsfmscope.report.style import COLOURS, GREY, SYMBOLS, Chart
from tsfmscope.report.tables import StudyTables

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = (
    "whose", "family", "model", "method", "size", "rank_ratio", "wql_ratio", "mase_ratio", "overlap", "lppl",
)  # fmt: skip
INTERVALS = ("model", "quantity", "n", "estimate", "low", "high")
# Methods, in the order that assigns the colours of style.COLOURS.
METHODS: tuple[str, ...] = (*COMPRESSION_METHODS, "other")
# Kind of a dense model whose weights are read in another precision, such as bfloat16.
READ = "other precision"
# Column of a score -> the title of its panel.
QUANTITIES = {
    "wql_ratio": "WQL",
    "mase_ratio": "MASE",
    "overlap": "overlap of the 10 likeliest tokens",
    "lppl": "log perplexity (LPPL)",
}
# Factor between the positions of two methods at the same size, and the largest between the first and the last.
DODGE, LARGEST_DODGE = 1.07, 1.5
SHARES = (0.05, 0.1, 0.25, 0.5, 1.0)
HEIGHT = 180


def draw(study: StudyTables, models: Sequence[str]) -> Iterator[Figure]:
    """Draw one panel per family and score."""
    frame, intervals = study.rows("compressed", COLUMNS), study.rows("compressed_intervals", INTERVALS)
    if frame.empty:
        return
    methods = sorted(set(frame.loc[frame["whose"] == "measured", "method"]))
    words = "Dot plots of scores relative to the original against the share of the attention that is left, one "
    words += f"colour and symbol per method: {', '.join(methods) or 'none measured'}."
    caption = (
        "The line at 1 is the original. Log perplexity is that of the next tokens; the overlap is that of the ten "
        f"likeliest next tokens (Jaccard).{_describe_intervals(intervals)} Grey: Table 2 of Yu et al. 2026, base-sized "
        "models compressed by svd. Their size is mean rank ÷ width. Ours is the share of attention parameters that is "
        "left; for svd it is up to twice mean rank ÷ width."
    )
    yield Figure("compressed", draw_compressed(frame, intervals), words, caption)


def _describe_intervals(intervals: pd.DataFrame) -> str:
    """Return a sentence on the intervals, with n; empty without intervals."""
    tested = intervals.loc[intervals["low"].notna(), "n"]
    if tested.empty:
        return ""
    n = style.format_range(tested)
    return f" Lines: 95 % intervals, Student's t over n = {n} data sets; they may end outside the panel."


def draw_compressed(frame: pd.DataFrame, intervals: pd.DataFrame) -> Chart:
    """Draw scores relative to the original against the attention's size, one colour and symbol per method.

    frame: COLUMNS. intervals: INTERVALS. There is one panel per family and score. Models of equal size stand side by
    side, with 95 % intervals, which may end outside the panel. Values printed by Yu et al. 2026, Tables 2 to 4, are
    grey lines: dotted for the zero-shot benchmark, else dashed.
    """
    cells = [
        (family, name)
        for family in sorted(frame["family"].unique())
        for name in QUANTITIES
        if (frame["family"].eq(family) & frame[name].notna()).any()
    ]
    used = set(frame.loc[frame["whose"] == "measured", "method"])
    methods = [name for name in METHODS if name in used] + sorted(used - set(METHODS))
    colours, symbols = {name: choose_colour(name) for name in methods}, {name: choose_symbol(name) for name in methods}
    dodge = min(DODGE, LARGEST_DODGE ** (1 / max(1, len(methods) - 1)))
    shifts = {name: dodge ** (position - (len(methods) - 1) / 2) for position, name in enumerate(methods)}
    x_axis = style.make_log_axis("share of the attention left", [*frame["size"], 1.0], SHARES)
    x_axis["axis"] = style.name_ticks({share: f"{share:.0%}" for share in x_axis["axis"].values})
    x = alt.X("size:Q", **x_axis)
    columns, panels = style.choose_columns(len(cells)), []
    for family, quantity in cells:
        part = frame[(frame["family"] == family) & frame[quantity].notna()]
        printed = part[part["whose"] == "published"].sort_values("size", kind="stable")
        printed = printed.assign(benchmark="paper, " + printed["model"].fillna("unnamed"), value=printed[quantity])
        measured = describe(join_intervals(part[part["whose"] == "measured"], intervals, quantity))
        measured = measured.assign(size=measured["size"].astype(float) * measured["method"].map(shifts))
        values = [*measured["value"], *printed["value"], 1.0]
        y = alt.Y("value:Q", title="relative to the original", **_value_axis(values, is_log=quantity != "overlap"))
        base = alt.Chart(measured).encode(x=x, y=y)
        paper = alt.Chart(printed.assign(tip=printed["benchmark"])).encode(x=x, y=y, **style.encode_tip())
        dashes = alt.condition("datum.model == 'zero-shot'", alt.value([2, 2]), alt.value([6, 4]))
        drawn = alt.layer(
            style.draw_guide(y=1),
            paper.mark_line(color=GREY, strokeWidth=1.4).encode(detail="benchmark:N", strokeDash=dashes),
            paper.mark_point(stroke=GREY, size=35),
            style.draw_whiskers(base.encode(stroke=style.encode_stroke("method", colours)), y, 1.2, clip=True),
            base.mark_point().encode(
                stroke=style.encode_stroke("method", colours), fill=style.encode_fill("method", colours),
                shape=style.encode_shape("method", symbols), **style.encode_tip(),
            ),
        )  # fmt: skip
        panels.append(style.name_panel(drawn, f"{family}\n{QUANTITIES[quantity]}", columns, HEIGHT))
    return style.arrange_panels(panels, columns)


def join_intervals(measured: pd.DataFrame, intervals: pd.DataFrame, quantity: str) -> pd.DataFrame:
    """Return the measured rows with columns value, low, high and n of a score.

    The value is the estimate that the interval belongs to, or the row's own value if there is no test.
    """
    tested = intervals[intervals["quantity"] == quantity][["model", "n", "estimate", "low", "high"]]
    rows = measured.merge(tested, on="model", how="left")
    return rows.assign(value=rows["estimate"].astype(float).fillna(rows[quantity].astype(float)))


def describe(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of `join_intervals` with a column `tip`: model, size, value and interval in words."""
    texts = []
    for row in style.iterate_rows(rows.rename(columns={"size": "share"})):
        has_interval = np.isfinite(float(row.low))
        span = f"95 % interval {row.low:.3g} to {row.high:.3g}, n = {int(row.n)}" if has_interval else "no interval"
        texts.append(f"{row.model}\nshare left {row.share:.3g}\n{row.value:.3g}\n{span}")
    return rows.assign(tip=texts)


def _value_axis(values: list[float], *, is_log: bool) -> dict[str, Any]:
    """Return scale and axis for the values, without a title; intervals do not widen them."""
    if is_log:
        return {name: part for name, part in style.make_log_axis("", values).items() if name != "title"}
    low, high = float(np.min(values)), float(np.max(values))
    room = max(0.12 * (high - low), 0.04)
    return {"scale": alt.Scale(domain=[low - room, high + room], nice=False, zero=False), "axis": alt.Axis(tickCount=5)}


def choose_colour(name: str) -> str:
    """Return the colour of a method, or of the dense model."""
    if name in ("dense", READ):
        return COLOURS[0]
    return COLOURS[1 + METHODS.index(name)] if name in METHODS else COLOURS[1 + len(METHODS)]


def choose_symbol(name: str) -> str:
    """Return the symbol of a method, since not all colours are easy to tell apart; a circle for other names."""
    return SYMBOLS[METHODS.index(name) % len(SYMBOLS)] if name in METHODS else SYMBOLS[0]


PLOT = Plot(
    "Loss of accuracy when the attention of a trained model is compressed, by method and by the share that is left. "
    "1 is the original model.",
    {"compressed": COLUMNS, "compressed_intervals": INTERVALS},
    draw,
    topic="compression",
)

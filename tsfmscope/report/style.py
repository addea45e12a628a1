"""Style of all charts and their building blocks: colours, axes, legends, guide lines, panels.

A chart is an Altair object, which describes the figure for the page, the image files and notebooks.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import altair as alt
import numpy as np

if TYPE_CHECKING:
    import pandas as pd

# Any chart of Altair: alone, in layers or in panels. Its methods are typed with Any in most places.
Chart: TypeAlias = Any

# The first three are from Okabe and Ito 2008. Each further colour is the one farthest from all
# before it as seen with colour blindness (Machado 2009). All have a contrast of at least 3 to the
# page, light and dark.
COLOURS = (
    "#0072B2", "#D55E00", "#009E73", "#C977A5", "#5A783C", "#A54B78", "#1E96F0", "#87964B",
    "#E16978", "#9687C3", "#A55A1E", "#0F784B", "#A55A96", "#96962D", "#C33C5A", "#7887D2", "#2D96A5",
)  # fmt: skip
# Colours of ordered quantities such as layers: of similar lightness, readable on white and on black.
ORDER = ((0.0, "#7b4fc9"), (0.25, "#2f86c4"), (0.5, "#1a9c88"), (0.75, "#7ba81f"), (1.0, "#e08a00"))
# Colours of text, secondary text, lines and grid on white. The page replaces them by its own.
INK, SOFT, LINE, GRID, PAPER = "#1d2126", "#5a626b", "#b9b5ab", "#e6e3dc", "#ffffff"
GREY = "#7f7f7f"
STAR = "M0,-1L0.29,-0.4L0.95,-0.31L0.48,0.15L0.59,0.81L0,0.5L-0.59,0.81L-0.48,0.15L-0.95,-0.31L-0.29,-0.4Z"
HEXAGON = "M0,-0.9L0.78,-0.45L0.78,0.45L0,0.9L-0.78,0.45L-0.78,-0.45Z"
SYMBOLS = ("circle", "diamond", "square", "triangle-up", "cross", STAR, HEXAGON, "triangle-down")
DASHES = ([1, 0], [6, 4], [2, 2], [8, 3, 2, 3])
DASH_NAMES = ("solid", "dashed", "dotted", "dash-dotted")
# Modalities, in the order that assigns dashes.
MODALITIES = ("series", "text", "image", "table")
# Longest name of a row on the axis and the part of its end that is kept, in characters.
NAME, TAIL = 26, 15
# Width in pixels of the panels of a figure, by the number of panels side by side.
WIDTHS = {1: 560, 2: 330, 3: 205, 4: 148}
# Characters of a legend that fit above the panels.
LEGEND = 135
CONFIG: dict[str, Any] = {
    "font": "Liberation Sans, Arial, sans-serif",
    "background": PAPER,
    "padding": 8,
    "view": {"stroke": None},
    "axis": {
        "labelColor": SOFT, "titleColor": SOFT, "titleFontWeight": "normal", "gridColor": GRID, "domainColor": LINE,
        "tickColor": LINE, "tickSize": 4, "labelFontSize": 10.5, "titleFontSize": 12, "labelLimit": 0, "titleLimit": 0,
        "labelFlush": False,
    },
    "axisQuantitative": {"tickCount": 6},
    "legend": {
        "orient": "top", "direction": "horizontal", "labelColor": INK, "titleColor": SOFT, "labelFontSize": 11,
        "titleFontSize": 11, "titleFontWeight": "normal", "titleOrient": "left", "labelLimit": 0, "symbolLimit": 0,
        "symbolStrokeWidth": 1.8, "symbolOpacity": 1, "titleLimit": 0, "offset": 10,
    },
    "title": {
        "anchor": "start", "color": INK, "fontSize": 12, "subtitleColor": SOFT, "subtitleFontSize": 11, "offset": 6,
        "frame": "group", "limit": 0,
    },
    "text": {"color": INK, "fontSize": 10.5},
    "line": {"strokeWidth": 2, "strokeCap": "butt"},
    "point": {"strokeWidth": 1.5, "size": 50, "opacity": 1},
    "concat": {"spacing": 26},
}  # fmt: skip


def interpolate_colour(position: int, count: int) -> str:
    """Return the colour of item `position` (from 0) of `count` ordered items, interpolated along ORDER."""
    at = position / (count - 1) if count > 1 else 0.0
    (low, first), (high, last) = next(pair for pair in itertools.pairwise(ORDER) if at <= pair[1][0])
    share = (at - low) / (high - low)
    parts = [[int(colour[start : start + 2], 16) for start in (1, 3, 5)] for colour in (first, last)]
    return "#" + "".join(f"{round(a + share * (b - a)):02x}" for a, b in zip(*parts, strict=True))


def order_colours(items: Sequence[Any]) -> dict[Any, str]:
    """Return item -> colour of ordered items."""
    return {item: interpolate_colour(position, len(items)) for position, item in enumerate(items)}


def choose_colour(model: str, models: Sequence[str]) -> str:
    """Return the colour of a model. models: the models of the whole page; another model comes after them."""
    return COLOURS[find_position(model, models) % len(COLOURS)]


def find_position(name: str | None, names: Sequence[str]) -> int:
    """Return the position of a name, such as a model among those of the page; others come after them."""
    return names.index(name) if name in names else len(names)


def pick_evenly(items: Sequence[Any], most: int) -> list[Any]:
    """Return at most so many items, evenly spaced, with the first and the last one."""
    indices = np.linspace(0, len(items) - 1, min(most, len(items))).round().astype(int)
    return [items[index] for index in dict.fromkeys(indices.tolist())]


def distinct_values(frame: pd.DataFrame, column: str) -> list[Any]:
    """Return the distinct values of a column, sorted, without missing ones."""
    return sorted(frame[column].dropna().unique().tolist())


def iterate_rows(frame: pd.DataFrame) -> Iterator[Any]:
    """Iterate over the rows as named tuples."""
    return iter(frame.itertuples(index=False))


def format_range(values: pd.Series) -> str:
    """Return the smallest and the largest of whole numbers, such as 2 to 5; one number if they are equal."""
    low, high = int(values.min()), int(values.max())
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def shorten_name(name: str, longest: int, tail: int) -> str:
    """Return a name of at most `longest` characters; a longer one has an ellipsis before its last `tail` ones."""
    return name if len(name) <= longest else f"{name[: longest - 1 - tail]}…{name[-tail:]}"


def map_values(values: Mapping[Any, Any]) -> alt.Scale:
    """Return the scale that gives each item its value, such as a colour or a symbol."""
    return alt.Scale(domain=list(values), range=list(values.values()))


def make_legend(names: Iterable[Any], title: str | None = None, **more: Any) -> alt.Legend:
    """Return a legend above the panels with as many columns as fit."""
    longest = max((len(str(name)) for name in names), default=0)
    return alt.Legend(title=title, columns=max(1, LEGEND // (longest + 5)), **more)


def encode_stroke(field: str, colours: Mapping[Any, str], title: str | None = None) -> alt.Stroke:
    """Return the colour of lines and outlines by a column, with a legend. colours: value -> colour."""
    legend = make_legend(colours, title) if len(colours) > 1 else None
    return alt.Stroke(f"{field}:N", scale=map_values(colours), title=title, legend=legend)


def encode_fill(field: str, colours: Mapping[Any, str]) -> alt.Fill:
    """Return the colour of areas by a column, without a legend. colours: value -> colour."""
    return alt.Fill(f"{field}:N", scale=map_values(colours), legend=None)


def encode_shape(field: str, symbols: Mapping[Any, str], *, has_legend: bool = True) -> alt.Shape:
    """Return the symbols of points by a column. symbols: value -> symbol."""
    legend = make_legend(symbols) if has_legend else None
    return alt.Shape(f"{field}:N", scale=map_values(symbols), title=None, legend=legend)


def encode_dash(field: str, names: Sequence[str]) -> alt.StrokeDash:
    """Return the dashes of lines by a column, with a legend."""
    dashes = dict(zip(names, itertools.cycle(DASHES), strict=False))
    legend = make_legend(names, symbolType="stroke") if len(names) > 1 else None
    return alt.StrokeDash(f"{field}:N", scale=map_values(dashes), title=None, legend=legend)


def fill_if(test: str) -> Any:
    """Return the opacity that fills the marks for which a Vega expression holds, and leaves the others open."""
    return alt.condition(test, alt.value(1), alt.value(0))


def open_if(test: str) -> Any:
    """Return the opacity that leaves the marks open for which a Vega expression holds, and fills the others."""
    return alt.condition(test, alt.value(0), alt.value(1))


def encode_tip(column: str = "tip") -> dict[str, Any]:
    """Return the channels that show a column's text when a reader points at a mark, or listens to it."""
    return {"tooltip": alt.Tooltip(f"{column}:N", title=" "), "description": alt.Description(f"{column}:N")}


def name_ticks(labels: Mapping[Any, str], /, **more: Any) -> alt.Axis:
    """Return an axis with these labels: position, or name, -> text."""
    texts, values = json.dumps([*labels.values()]), json.dumps([*labels])
    labelled = f"{texts}[indexof({values}, datum.value)]"
    # Vega draws only some of the values if there are more than its default number of ticks.
    return alt.Axis(values=[*labels], tickCount=len(labels), labelExpr=labelled, labelOverlap=False, **more)


def make_log_axis(title: str, values: Iterable[float], ticks: Sequence[float] = ()) -> dict[str, Any]:
    """Return title, scale and axis of a logarithmic channel that covers the values, which are positive.

    ticks: labelled values; by default powers of ten, with 2 and 5 where the range is short.
    """
    known = np.array([value for value in map(float, values) if np.isfinite(value) and value > 0] or [1.0])
    low, high = float(np.log10(known.min())), float(np.log10(known.max()))
    room = max(0.06 * (high - low), 0.04)
    low, high = low - room, high + room
    shown = [tick for tick in ticks or _log_ticks(low, high) if low <= math.log10(tick) <= high]
    return {
        "title": f"{title} (log)",
        "scale": alt.Scale(type="log", domain=[10.0**low, 10.0**high], nice=False),
        "axis": name_ticks({tick: format_tick(tick) for tick in shown}),
    }


def _log_ticks(low: float, high: float) -> list[float]:
    """Return round values between two decimal exponents."""
    if high - low < 0.6:
        return choose_round_ticks(10.0**low, 10.0**high, 5)
    firsts = (1, 2, 5) if high - low < 1.6 else (1,)
    step = max(1, math.ceil((high - low) / 5))
    powers = range(math.floor(low), math.ceil(high) + 1)
    return [float(f"{first}e{power}") for power in powers for first in firsts if power % step == 0]


def format_tick(value: float) -> str:
    """Return a round number as text with a true minus sign, far from 1 as a power such as 1e−5."""
    plain = value == 0 or 1e-4 <= abs(value) < 1e5
    text = f"{value:g}" if plain else f"{value:.0e}".replace("e-0", "e-").replace("e+0", "e")
    return text.replace("-", "−")


def scale_from_zero(values: Iterable[float]) -> alt.Scale:
    """Return the scale of a channel from zero to a little more than the largest value."""
    largest = max((value for value in map(float, values) if math.isfinite(value)), default=0.0)
    return alt.Scale(domain=[0, 1.06 * largest or 1.0], nice=False)


def format_power(exponent: float) -> str:
    """Return a power of ten as text, the exponent rounded to an integer."""
    return "10" + str(round(exponent)).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))


def choose_round_ticks(low: float, high: float, most: int = 4) -> list[float]:
    """Return at most `most` multiples of 1, 2, 2.5 or 5 times a power of ten between two different numbers."""
    exponent = math.floor(math.log10((high - low) / most)) - 1
    steps = (first * 10.0**power for power in itertools.count(exponent) for first in (1, 2, 2.5, 5))
    for step in steps:
        first, last = math.ceil(low / step), math.floor(high / step)
        if last - first < most:
            return [round(step * n, 3 - exponent) for n in range(first, last + 1)]
    raise AssertionError("steps grow without end")


def copy_axis(channel: alt.X | alt.Y, column: str) -> Any:
    """Return the same axis for another column."""
    copied = channel.copy(deep=False)
    copied.shorthand = f"{column}:Q"
    return copied


def draw_whiskers(base: alt.Chart, axis: alt.X | alt.Y, width: float, **more: Any) -> Chart:
    """Draw the interval from column `low` to column `high` along an axis, for the rows that have one."""
    rule = base.transform_filter("isValid(datum.low)").mark_rule(strokeWidth=width, aria=False, **more)
    low = copy_axis(axis, "low")
    return rule.encode(x=low, x2="high:Q") if isinstance(axis, alt.X) else rule.encode(y=low, y2="high:Q")


def draw_guide(*, x: float | None = None, y: float | None = None, dashes: Sequence[int] = (1, 0)) -> Chart:
    """Return a grey line across a panel at x or at y."""
    at = {name: alt.datum(value) for name, value in (("x", x), ("y", y)) if value is not None}
    line = alt.Chart(alt.InlineData([{}])).mark_rule(color=GREY, strokeDash=list(dashes), aria=False)
    return line.encode(**at)


def write_texts(texts: Iterable[Mapping[str, Any]], *, dx: float = 0, dy: float = 0, **style: Any) -> Chart:
    """Write texts into a panel. texts: x, y, text; style: of the marks, such as align and color."""
    chart = alt.Chart(alt.InlineData([dict(text) for text in texts]))
    return chart.mark_text(dx=dx, dy=dy, aria=False, **style).encode(x="x:Q", y="y:Q", text="text:N")


def name_panel(chart: Chart, title: str, columns: int, height: int) -> Chart:
    """Give a panel its size and title. The first line of a title is bold, further lines are not."""
    head, *more = title.split("\n")
    return chart.properties(width=WIDTHS[columns], height=height, title=alt.Title(head, subtitle=more))


def choose_columns(count: int, most: int = 4) -> int:
    """Return the number of panels side by side: up to 3 in one row, else what fills all rows."""
    most = min(most, 4)
    return count if count <= min(3, most) else next((n for n in range(most, 1, -1) if count % n == 0), most)


def arrange_panels(panels: Sequence[Chart], columns: int, **resolve: str) -> Chart:
    """Stand panels in rows, with shared legends, and axis titles at the left and at the bottom only.

    resolve: channel -> "shared", for scales that all panels share.
    """
    for position, panel in enumerate(panels):
        if position % columns:
            _remove_title(panel, "y")
        if position + columns < len(panels):
            _remove_title(panel, "x")
    channels = ("stroke", "fill", "shape", "strokeDash", "strokeWidth")
    together: Chart = alt.concat(*panels, columns=columns)
    return together.resolve_scale(**dict.fromkeys(channels, "shared"), **resolve)


def _remove_title(panel: Any, channel: str) -> None:
    for layer in getattr(panel, "layer", None) or []:
        _remove_title(layer, channel)
    encoding: Any = getattr(panel, "encoding", alt.Undefined)
    axis: Any = alt.Undefined if encoding is alt.Undefined else encoding[channel]
    if axis is not alt.Undefined and axis._get("title") is not alt.Undefined:
        axis.title = None


def make_rows(names: Sequence[str], *, field: str = "dataset", bold: str = "") -> alt.Y:
    """Return a vertical axis with one row per name, from the top; long names are shortened."""
    labels: Mapping[Any, str] = {name: shorten_name(name, NAME, TAIL) for name in names}
    weight = alt.condition(alt.datum.value == bold, alt.value("bold"), alt.value("normal"))
    axis = name_ticks(labels, ticks=False, domain=False, labelFontWeight=weight, grid=False)
    return alt.Y(f"{field}:N", title=None, scale=alt.Scale(domain=list(names)), axis=axis)


def is_number(value: Any) -> bool:
    """Return whether a value is a finite number, neither None nor NaN."""
    return value is not None and math.isfinite(value)


def format_signed(value: float) -> str:
    """Return a number with two decimals and a true minus sign."""
    return f"{value:.2f}".replace("-", "−")

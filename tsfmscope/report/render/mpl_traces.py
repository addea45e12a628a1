"""Functions that draw lines, markers, texts, areas, bars and heat maps of Plotly traces with matplotlib."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap

# Plotly's pixels per inch, so that its text of 12.5 px has 9 pt.
INCH = 100
# Points per pixel.
POINT = 72 / INCH
# Text colour, as in page.css on white.
INK = "#1d2126"
SYMBOLS = {
    "circle": "o",
    "diamond": "D",
    "square": "s",
    "triangle-up": "^",
    "triangle-down": "v",
    "triangle-left": "<",
    "triangle-right": ">",
    "cross": "P",
    "star": "*",
    "hexagon": "h",
}
DASHES = {"solid": "-", "dash": "--", "dot": ":", "dashdot": "-."}
# Plotly's position of a text -> offset from its point in points, horizontal and vertical alignment.
TEXT_POSITIONS = {
    "top center": ((0, 4), "center", "baseline"),
    "top right": ((3, 3), "left", "baseline"),
    "middle center": ((0, 0), "center", "center_baseline"),
    "middle right": ((5, 0), "left", "center_baseline"),
    "middle left": ((-5, 0), "right", "center_baseline"),
}
# Luma, from 0 to 1, above which an element of a heat map has dark text.
BRIGHT = 0.5
TAG = re.compile(r"<[^>]*>")


def draw_scatter(axes: Axes, trace: Any) -> None:
    """Draw lines, whiskers, markers and texts of one trace; a missing point interrupts lines."""
    x, y = (np.array([np.nan if v is None else v for v in values], dtype=float) for values in (trace.x, trace.y))
    mode = trace.mode or "lines+markers"
    if trace.fill == "toself":
        shade, alpha = parse_colour(trace.fillcolor)
        axes.fill(x, y, color=shade, alpha=alpha, lw=0, zorder=1)
    if "lines" in mode:
        shade, alpha = parse_colour(trace.line.color)
        dash = DASHES[trace.line.dash or "solid"]
        axes.plot(x, y, dash, color=shade, alpha=alpha, lw=line_width(trace.line), zorder=2)
    if trace.error_y.array is not None:
        _whiskers(axes, x, y, trace)
    if "markers" in mode:
        _markers(axes, x, y, trace)
    if "text" in mode:
        _texts(axes, x, y, trace)


def _texts(axes: Axes, x: np.ndarray, y: np.ndarray, trace: Any) -> None:
    offset, side, height = TEXT_POSITIONS[trace.textposition or "top center"]
    shade, size = parse_colour(trace.textfont.color)[0], (trace.textfont.size or 10) * POINT
    for at, text in enumerate(repeat_value(trace.text, len(x))):
        if text and np.isfinite(x[at]):
            axes.annotate(
                strip_tags(text), (x[at], y[at]), offset, textcoords="offset points", ha=side, va=height, color=shade,
                size=size,
            )  # fmt: skip


def draw_heat_map(axes: Axes, trace: Any, scale: Any) -> None:
    """Draw a heat map, one image element per number, first row on top; scale: the layout's colour axis.

    `text` is written into the elements where the trace has a `texttemplate`.
    """
    z = np.array(trace.z, dtype=float)
    rows, columns = z.shape
    ends = (-0.5, columns - 0.5, rows - 0.5, -0.5)
    shades = build_colormap(scale.colorscale)
    limits = {"vmin": scale.cmin, "vmax": scale.cmax}
    axes.imshow(z, cmap=shades, extent=ends, aspect=axes.get_aspect(), interpolation="nearest", **limits)
    if trace.texttemplate:
        _cell_texts(axes, z, trace, scale, shades)


def _cell_texts(axes: Axes, z: np.ndarray, trace: Any, scale: Any, shades: Colormap) -> None:
    """Write the texts of a heat map, dark on bright elements and white on dark ones."""
    for row, column in zip(*np.nonzero(np.isfinite(z)), strict=True):
        share = (z[row, column] - scale.cmin) / (scale.cmax - scale.cmin)
        bright = float(np.dot(shades(share)[:3], (0.299, 0.587, 0.114))) > BRIGHT
        axes.annotate(
            strip_tags(trace.text[row][column]), (column, row), ha="center", va="center_baseline", size=7,
            color=INK if bright else "white",
        )  # fmt: skip


def draw_bars(axes: Axes, trace: Any) -> None:
    """Draw bars from zero, each in its own colour."""
    shades = [parse_colour(colour) for colour in repeat_value(trace.marker.color, len(trace.x))]
    faces = [(*_rgb(shade), alpha) for shade, alpha in shades]
    axes.bar(trace.x, trace.y, trace.width or 0.8, color=faces, lw=0, zorder=2)


def build_colormap(scale: Sequence[tuple[float, str]]) -> Colormap:
    """Return Plotly's colour scale as a matplotlib colour map."""
    from matplotlib.colors import LinearSegmentedColormap

    return LinearSegmentedColormap.from_list("scale", [(float(at), shade) for at, shade in scale])


def _rgb(shade: str) -> tuple[float, float, float]:
    from matplotlib.colors import to_rgb

    return to_rgb(shade)


def _whiskers(axes: Axes, x: np.ndarray, y: np.ndarray, trace: Any) -> None:
    above, below = trace.error_y.array, trace.error_y.arrayminus
    shade, alpha = parse_colour(trace.line.color or trace.marker.color)
    ends = np.array([above if below is None else below, above])
    axes.errorbar(x, y, yerr=ends, fmt="none", ecolor=shade, alpha=alpha, elinewidth=POINT, capsize=2, capthick=POINT)


def _markers(axes: Axes, x: np.ndarray, y: np.ndarray, trace: Any) -> None:
    """Draw markers, with one call per symbol.

    Markers with a colour scale are drawn in one call, as circles.
    """
    from matplotlib.markers import MarkerStyle

    if trace.marker.colorscale and not isinstance(trace.marker.color, str):
        shades = build_colormap(trace.marker.colorscale)
        size, limits = (trace.marker.size * POINT) ** 2, {"vmin": trace.marker.cmin, "vmax": trace.marker.cmax}
        axes.scatter(x, y, size, c=np.array(trace.marker.color, float), cmap=shades, lw=0, zorder=3, **limits)
        return
    shade, alpha = parse_colour(trace.marker.color or trace.line.color)
    sizes = np.broadcast_to(trace.marker.size or 6, x.shape)
    symbols = np.array(list(repeat_value(trace.marker.symbol or "circle", len(x))))
    is_shown = np.isfinite(x) & np.isfinite(y)
    for name in dict.fromkeys(symbols.tolist()):
        at = is_shown & (symbols == name)
        shape, hollow, dotted = parse_symbol(name)
        axes.scatter(
            x[at], y[at], (sizes[at] * POINT) ** 2, marker=MarkerStyle(shape), alpha=alpha,
            facecolor="none" if hollow else shade, edgecolor=shade, lw=POINT * 1.2, zorder=3,
        )  # fmt: skip
        if dotted:
            axes.scatter(x[at], y[at], 3, color=shade if hollow else "white", lw=0, zorder=4)


def make_legend_handle(trace: Any) -> Any:
    """Return the legend handle of a trace: line, marker or both; a pair of handles for a dotted marker."""
    from matplotlib.lines import Line2D

    mode = trace.mode or "lines+markers"
    how: dict[str, Any] = {"ls": "none"}
    if "lines" in mode:
        shade, alpha = parse_colour(trace.line.color)
        how = {"color": shade, "alpha": alpha, "ls": DASHES[trace.line.dash or "solid"], "lw": line_width(trace.line)}
    if "markers" not in mode:
        return Line2D([], [], **how)
    shade, _ = parse_colour(trace.marker.color or (trace.line.color))
    shape, hollow, dotted = parse_symbol(next(repeat_value(trace.marker.symbol or "circle", 1)))
    whole = Line2D([], [], **how, marker=shape, mec=shade, mfc="none" if hollow else shade, ms=5)
    dot = Line2D([], [], ls="none", marker="o", ms=1.6, color=shade if hollow else "white")
    return (whole, dot) if dotted else whole


def parse_symbol(name: str) -> tuple[str, bool, bool]:
    """Return matplotlib's marker, whether it is hollow, and whether it has a dot.

    Raises ValueError for an unknown symbol.
    """
    dotted = name.endswith("-dot")
    base = name.removesuffix("-dot")
    hollow = base.endswith("-open")
    base = base.removesuffix("-open")
    if base not in SYMBOLS:
        raise ValueError(f"symbol {name!r} cannot be drawn; mpl_traces.py draws {', '.join(SYMBOLS)}")
    return SYMBOLS[base], hollow, dotted


def repeat_value(values: Any, count: int) -> Iterator[Any]:
    """Yield one value per point; Plotly has either one value for all or a list."""
    yield from [values] * count if values is None or isinstance(values, str) else values


def line_width(line: Any) -> float:
    """Return the line width in points; Plotly's default is 2 pixels."""
    return float(line.width or 2) * POINT


def parse_colour(text: str | None) -> tuple[str, float]:
    """Return a colour in matplotlib's notation and its opacity; the text colour for None."""
    if text and text.startswith("rgba("):
        red, green, blue, alpha = (float(part) for part in text[5:-1].split(","))
        return f"#{int(red):02x}{int(green):02x}{int(blue):02x}", alpha
    return text or INK, 1.0


def strip_tags(text: str) -> str:
    """Return text without tags, with entities decoded and <br> as a line break."""
    return html.unescape(TAG.sub("", text.replace("<br>", "\n")))

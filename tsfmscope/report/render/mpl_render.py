"""Plotly figures drawn as PNG and SVG by matplotlib, without a browser.

Supports the traces and layouts that this report uses. An unknown trace type or symbol raises ValueError, and
so does a figure without the common style.
Colours are those of a white page. The same figure gives the same bytes.
"""

from __future__ import annotations

import io
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tsfmscope.report.colorscale import format_power
from tsfmscope.report.render.mpl_traces import (
    INCH,
    INK,
    POINT,
    build_colormap,
    draw_bars,
    draw_heat_map,
    draw_scatter,
    make_legend_handle,
    strip_tags,
)

if TYPE_CHECKING:
    import plotly.graph_objects as go
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Widths of the whole image in inches: over two columns of a page, and over one, for figures whose
# `layout.meta` has `one_column`. Printed at 7 and 3.3 inches, text of 8.5 pt has 6.9 pt.
WIDTH, COLUMN_WIDTH = 8.6, 4.05
# Height in pixels, inside the margins, of a figure whose layout sets no height.
PLOT_HEIGHT = 330
DPI = 150
# Colours of secondary text and of grid lines, as in page.css on white.
SOFT, GRID = "#5a626b", "#e6e3dc"
STYLE = {
    # Ships with matplotlib, so that every machine draws the same text.
    "font.family": "DejaVu Sans",
    "font.size": 8.5,
    "text.color": INK,
    "axes.edgecolor": "#b9b5ab",
    "axes.labelcolor": SOFT,
    "axes.linewidth": 0.6,
    "axes.grid": True,
    "grid.color": GRID,
    "grid.linewidth": 0.6,
    "xtick.color": SOFT,
    "ytick.color": SOFT,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "svg.hashsalt": "tsfmscope",
    "svg.fonttype": "path",
    "text.parse_math": False,
}
KNOWN = ("scatter", "heatmap", "bar")
# Height in inches of the title of a figure among several.
TITLE = 0.24
# Height in pixels of one line of a panel's title.
LINE = 14
ALIGN = {"center": "center", "left": "left", "right": "right", "top": "top", "middle": "center", "bottom": "bottom"}


def render(figures: Sequence[tuple[str, go.Figure]]) -> dict[str, bytes]:
    """Draw all figures in one image and return it as suffix (png, svg) -> bytes.

    figures: pairs of title and figure; "" for no title. They stand one below another; the title of a single
    figure is not shown.
    Raises ValueError if there is no figure, or if a figure has an unknown trace type or symbol, or no margins
    because `apply_style` was not called.
    """
    import matplotlib as mpl
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    if not figures:
        raise ValueError("figures: got none, expected at least one")
    with mpl.rc_context(STYLE):
        drawn = _draw(figures)
        FigureCanvasAgg(drawn)
        out = {}
        for kind, about in (("png", {"Software": None}), ("svg", {"Date": None, "Creator": None})):
            buffer = io.BytesIO()
            drawn.savefig(buffer, format=kind, dpi=DPI, facecolor="white", metadata=about)
            out[kind] = buffer.getvalue()
    return out


def _draw(figures: Sequence[tuple[str, go.Figure]]) -> Figure:
    from matplotlib.figure import Figure

    for title, figure in figures:
        _check(title, figure)
    shown = figures if len(figures) > 1 else [("", figure) for _, figure in figures]
    heights = [_height(figure) + TITLE * bool(title) for title, figure in shown]
    total = sum(heights)
    canvas = Figure(figsize=(max(_width(figure) for _, figure in shown), total))
    top = total
    for (title, figure), height in zip(shown, heights, strict=True):
        above = TITLE * bool(title)
        canvas.text(0.075, (top - above) / total, strip_tags(title), va="bottom", size=9.5, color=SOFT)
        _figure(canvas, figure, (top - above) / total, (height - above) / total)
        top -= height
    return canvas


def _check(title: str, figure: go.Figure) -> None:
    """Raise ValueError for an unknown trace type, or for a figure without margins."""
    for trace in figure.data:
        if trace.type not in KNOWN:
            raise ValueError(f"trace type {trace.type!r} cannot be drawn; mpl_render.py draws {', '.join(KNOWN)}")
    margin = figure.layout.margin
    if None in (margin.l, margin.r, margin.t, margin.b):
        raise ValueError(
            f"figure {title!r}: expected margins on all four sides, found {margin.to_plotly_json()}; pass the figure "
            "through charts.figures.apply_style"
        )


def _width(figure: go.Figure) -> float:
    """Return the width of a figure in inches."""
    return COLUMN_WIDTH if (figure.layout.meta or {}).get("one_column") else WIDTH


def _height(figure: go.Figure) -> float:
    """Return the height of a figure in inches: plot area, legend, titles and labels."""
    margin = figure.layout.margin
    inside = figure.layout.height - margin.t - margin.b if figure.layout.height else PLOT_HEIGHT
    return float(inside + _head(figure) + margin.b) / INCH


def _head(figure: go.Figure) -> float:
    """Return the height in pixels above the axes, which holds the legend and the panels' titles."""
    lines = max((annotation.text.count("<br>") for annotation in figure.layout.annotations), default=-1)
    return 14 + 17 * _legend_rows(_entries(figure), _width(figure)) + (22 + LINE * lines if lines >= 0 else 0)


def _figure(canvas: Figure, figure: go.Figure, top: float, height: float) -> None:
    """Draw a figure; each pair of axes takes its domain of the area inside Plotly's margins.

    top, height: position of the figure, in fractions of the canvas height.
    """
    margin = figure.layout.margin
    total, wide = canvas.get_figheight() * INCH, _width(figure) * INCH
    inside = {
        "left": margin.l / wide,
        "right": 1 - margin.r / wide,
        "top": top - _head(figure) / total,
        "bottom": top - height + margin.b / total,
    }
    axes: dict[tuple[str, str], Axes] = {}
    for trace in figure.data:
        names = (trace.xaxis or "x", trace.yaxis or "y")
        if names not in axes:
            axes[names] = _axes(canvas, figure, names, inside)
        if trace.type == "heatmap":
            draw_heat_map(axes[names], trace, figure.layout.coloraxis)
        elif trace.type == "bar":
            draw_bars(axes[names], trace)
        elif trace.visible in (None, True):
            draw_scatter(axes[names], trace)
    for annotation in figure.layout.annotations:
        _annotate(axes, annotation)
    for names, drawn in axes.items():
        if figure.layout[f"yaxis{names[1][1:]}"].rangemode == "tozero" and drawn.dataLim.y0 >= 0:
            drawn.set_ylim(bottom=0)
    if figure.layout.coloraxis.colorscale:
        right = inside["right"] + 12 / wide
        tall = figure.layout.coloraxis.colorbar.len / total
        _colour_bar(canvas, figure.layout.coloraxis, (right, inside["top"] - tall, 12 / wide, tall))
    _legend(canvas, _entries(figure), top - 8 / total)


def _axes(canvas: Figure, figure: go.Figure, names: tuple[str, str], inside: Mapping[str, float]) -> Axes:
    x, y = (figure.layout[f"{name[0]}axis{name[1:]}"] for name in names)
    (left, right), (low, high) = (axis.domain or (0, 1) for axis in (x, y))
    wide, tall = inside["right"] - inside["left"], inside["top"] - inside["bottom"]
    box = (inside["left"] + left * wide, inside["bottom"] + low * tall, (right - left) * wide, (high - low) * tall)
    axes = canvas.add_axes(box, label="/".join(names))
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    axes.set_axisbelow(True)
    _axis(axes, "x", x)
    _axis(axes, "y", y)
    return axes


def _colour_bar(canvas: Figure, scale: Any, box: tuple[float, float, float, float]) -> None:
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize

    axes, bar = canvas.add_axes(box), scale.colorbar
    shades = ScalarMappable(Normalize(scale.cmin, scale.cmax), build_colormap(scale.colorscale))
    drawn = canvas.colorbar(shades, cax=axes, ticks=list(bar.tickvals))
    drawn.ax.set_yticklabels([strip_tags(text) for text in bar.ticktext])
    drawn.outline.set_visible(False)
    drawn.set_label(strip_tags(bar.title.text or ""), color=SOFT)


def _axis(axes: Axes, name: str, axis: Any) -> None:
    from matplotlib import ticker

    getattr(axes, f"set_{name}label")(strip_tags(axis.title.text or ""))
    drawn = getattr(axes, f"{name}axis")
    if axis.type == "log":
        getattr(axes, f"set_{name}scale")("log")
        drawn.set_minor_locator(ticker.NullLocator())
        decades = axis.dtick if isinstance(axis.dtick, (int, float)) else None
        drawn.set_major_locator(ticker.LogLocator(10.0**decades) if decades else ticker.LogLocator(subs=(1, 2, 5)))
        drawn.set_major_formatter(ticker.FuncFormatter(_power if decades else _short))
    elif axis.dtick and axis.tickvals is None:
        drawn.set_major_locator(ticker.MultipleLocator(axis.dtick, offset=axis.tick0 or 0))
    if axis.range is not None:
        low, high = (10.0**end if axis.type == "log" else end for end in axis.range)
        getattr(axes, f"set_{name}lim")(low, high)
    if axis.tickvals is not None:
        getattr(axes, f"set_{name}ticks")(list(axis.tickvals), [strip_tags(text) for text in axis.ticktext])
    if axis.showgrid is False:
        drawn.grid(visible=False)
    if axis.scaleanchor:
        axes.set_aspect("equal", adjustable="box", anchor="NW")
    if axis.showticklabels is False:
        drawn.set_tick_params(**{"labelbottom" if name == "x" else "labelleft": False, "length": 0})
    if axis.rangemode == "tozero" and axis.range is None:
        axes.update_datalim([(0, 0)], updatex=name == "x", updatey=name == "y")


def _annotate(axes: Mapping[tuple[str, str], Axes], annotation: Any) -> None:
    names = tuple(str(ref).removesuffix(" domain") for ref in (annotation.xref, annotation.yref))
    where = ALIGN[annotation.xanchor or "center"], ALIGN[annotation.yanchor or "middle"]
    at, right = axes[names], (annotation.xshift or 0) * POINT  # type: ignore[index]
    for position, line in enumerate(reversed(annotation.text.split("<br>"))):
        above = 2 + position * LINE * POINT
        at.annotate(
            strip_tags(line), (annotation.x, annotation.y), (right, above), "axes fraction", "offset points",
            ha=where[0], va=where[1], weight="bold" if "<b>" in line else "normal",
        )  # fmt: skip


def _entries(figure: go.Figure) -> dict[str, Any]:
    """Return name -> legend handle of the traces that the legend shows, each name once."""
    found: dict[str, Any] = {}
    for trace in figure.data:
        name = strip_tags(trace.name or "")
        if not name or trace.showlegend is False or trace.visible not in (None, True) or name in found:
            continue
        found[name] = make_legend_handle(trace)
    return found


def _legend_columns(entries: Mapping[str, Any], width: float = WIDTH) -> int:
    longest = max(map(len, entries), default=0)
    return max(1, min(len(entries), int(width * 14 / (longest + 5))))


def _legend_rows(entries: Mapping[str, Any], width: float = WIDTH) -> int:
    return -(-len(entries) // _legend_columns(entries, width)) if len(entries) > 1 else 0


def _legend(canvas: Figure, entries: Mapping[str, Any], top: float) -> None:
    from matplotlib.legend_handler import HandlerTuple

    if len(entries) < 2:
        return
    columns = _legend_columns(entries, canvas.get_figwidth())
    # matplotlib fills a legend by columns, Plotly by rows.
    order = [at for column in range(columns) for at in range(column, len(entries), columns)]
    names, handles = list(entries), list(entries.values())
    canvas.legend(
        [handles[at] for at in order], [names[at] for at in order], ncols=columns, loc="upper left", frameon=False,
        bbox_to_anchor=(0.06, top), fontsize=7.5, borderaxespad=0, handletextpad=0.4, columnspacing=1.4,
        handler_map={tuple: HandlerTuple(ndivide=1)},
    )  # fmt: skip


def _power(value: float, _: int) -> str:
    return format_power(math.log10(value) if value > 0 else 0)


def _short(value: float, _: int) -> str:
    return f"{value:.3g}".replace("-", "−")

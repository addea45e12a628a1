"""Plotly figures as PNG and SVG by matplotlib, without a browser: the traces and layouts that this report uses.

Colours are those of a white page. The same figure gives the same bytes. A trace or symbol that is not known raises.
"""

from __future__ import annotations

import html
import io
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import plotly.graph_objects as go
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from mpl_toolkits.mplot3d.axes3d import Axes3D

INCH = 100  # Plotly's pixels an inch: its 12.5 px text is 9 pt
WIDTH = 8.6  # inches
SCENE = 2.75  # inches, of a picture in three dimensions
PLOT_HEIGHT = 4.3  # inches, of a figure that names no height
DPI = 150
POINT = 72 / INCH  # points a pixel
INK, SOFT, GRID = "#1d2126", "#5a626b", "#e6e3dc"  # as in page.css, on white
STYLE = {
    "font.family": "DejaVu Sans",  # ships with matplotlib
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
    "svg.hashsalt": "tsfm-lens",
    "svg.fonttype": "path",
    "text.parse_math": False,
}
SYMBOLS = {
    "circle": "o",
    "diamond": "D",
    "square": "s",
    "triangle-up": "^",
    "triangle-down": "v",
    "cross": "P",
    "star": "*",
    "hexagon": "h",
}
DASHES = {"solid": "-", "dash": "--", "dot": ":", "dashdot": "-."}
TAG = re.compile(r"<[^>]*>")
ALIGN = {"center": "center", "left": "left", "right": "right", "top": "top", "middle": "center", "bottom": "bottom"}


def still(figures: Sequence[tuple[str, go.Figure]]) -> dict[str, bytes]:
    """Suffix (png, svg) -> bytes of the figures, one below another; those in three dimensions three in a row.

    figures: title and figure; a title of "" is left out. Raises ValueError for no figure, or for what cannot be drawn.
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

    for _, figure in figures:
        for trace in figure.data:
            if trace.type not in ("scatter", "scatter3d"):
                raise ValueError(f"trace type {trace.type!r} cannot be drawn; static.py knows scatter and scatter3d")
    scenes = [pair for pair in figures if _is_scene(pair[1])]
    flat = [pair for pair in figures if not _is_scene(pair[1])]
    columns = min(3, len(scenes)) or 1
    rows = -(-len(scenes) // columns)
    entries = _entries([figure for _, figure in scenes])
    heights = [_height(figure) for _, figure in flat]
    legend = 0.3 + 0.17 * -(-len(entries) // 6) if scenes else 0.0
    total = sum(heights) + rows * SCENE + legend
    canvas = Figure(figsize=(WIDTH, total))
    top = total
    for (title, figure), height in zip(flat, heights, strict=True):
        _flat(canvas, title, figure, top / total, height / total)
        top -= height
    if scenes:
        _legend(canvas, entries, (top - 0.05) / total)
        top -= legend
    for place, (title, figure) in enumerate(scenes):
        row, column = divmod(place, columns)
        side, low = 1 / columns, (top - (row + 1) * SCENE) / total
        _scene(canvas, title, figure, (column * side, low, side, SCENE / total))
    return canvas


def _is_scene(figure: go.Figure) -> bool:
    return any(trace.type == "scatter3d" for trace in figure.data)


def _height(figure: go.Figure) -> float:
    return float(figure.layout.height) / INCH if figure.layout.height else PLOT_HEIGHT


def _flat(canvas: Figure, title: str, figure: go.Figure, top: float, height: float) -> None:
    """A figure of one pair of axes or more, at their domains inside Plotly's margins."""
    margin = figure.layout.margin
    total = canvas.get_figheight() * INCH
    wide = WIDTH * INCH
    inside = {
        "left": (margin.l or 64) / wide,
        "right": 1 - (margin.r or 16) / wide,
        "top": top - max(margin.t or 12, 44) / total,
        "bottom": top - height + (margin.b or 56) / total,
    }
    axes: dict[tuple[str, str], Axes] = {}
    for trace in figure.data:
        names = (trace.xaxis or "x", trace.yaxis or "y")
        if names not in axes:
            axes[names] = _axes(canvas, figure, names, inside)
        if trace.visible in (None, True):
            _scatter(axes[names], trace)
    for annotation in figure.layout.annotations:
        _annotate(axes, annotation)
    if title:
        canvas.text(inside["left"], top - 8 / total, title, va="top", weight="bold")
    _legend(canvas, _entries([figure]), top - 6 / total)


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


def _axis(axes: Axes, name: str, axis: Any) -> None:
    from matplotlib import ticker

    getattr(axes, f"set_{name}label")(_plain(axis.title.text or ""))
    drawn = getattr(axes, f"{name}axis")
    if axis.type == "log":
        getattr(axes, f"set_{name}scale")("log")
        drawn.set_minor_locator(ticker.NullLocator())
        decades = axis.dtick if isinstance(axis.dtick, (int, float)) else None
        drawn.set_major_locator(ticker.LogLocator(10.0**decades) if decades else ticker.LogLocator(subs=(1, 2, 5)))
        drawn.set_major_formatter(ticker.FuncFormatter(_power if decades else _short))
    if axis.range is not None:
        low, high = (10.0**end if axis.type == "log" else end for end in axis.range)
        getattr(axes, f"set_{name}lim")(low, high)
    if axis.tickvals is not None:
        getattr(axes, f"set_{name}ticks")(list(axis.tickvals), [_plain(text) for text in axis.ticktext])
    if axis.showticklabels is False:
        drawn.set_tick_params(labelbottom=False, labelleft=False)
    if axis.rangemode == "tozero" and axis.range is None:
        axes.update_datalim([(0, 0)], updatex=name == "x", updatey=name == "y")


def _scatter(axes: Axes, trace: Any) -> None:
    """Lines, whiskers, markers and texts of one trace; a missing point parts lines."""
    from matplotlib.markers import MarkerStyle

    x, y = (np.array([np.nan if v is None else v for v in values], dtype=float) for values in (trace.x, trace.y))
    mode = trace.mode or "lines+markers"
    if "lines" in mode:
        colour, alpha = _colour(trace.line.color)
        axes.plot(x, y, DASHES[trace.line.dash or "solid"], color=colour, alpha=alpha, lw=_line(trace.line), zorder=2)
    if trace.error_y.array is not None:
        below = trace.error_y.arrayminus if trace.error_y.arrayminus is not None else trace.error_y.array
        colour, alpha = _colour(trace.line.color or trace.marker.color)
        how = {"elinewidth": POINT, "capsize": 2, "capthick": POINT}
        axes.errorbar(x, y, yerr=np.array([below, trace.error_y.array]), fmt="none", ecolor=colour, alpha=alpha, **how)
    if "markers" in mode and trace.marker.angleref == "previous":
        _arrows(axes, x, y, trace)
    elif "markers" in mode:
        colour, alpha = _colour(trace.marker.color)
        sizes = np.broadcast_to(trace.marker.size or 6, x.shape)
        for at, symbol in enumerate(_each(trace.marker.symbol or "circle", len(x))):
            if np.isfinite(x[at]) and np.isfinite(y[at]):
                shape, hollow, dotted = _symbol(symbol)
                axes.scatter(
                    x[at], y[at], (sizes[at] * POINT) ** 2, marker=MarkerStyle(shape), alpha=alpha,
                    facecolor="none" if hollow else colour, edgecolor=colour, lw=POINT * 1.2, zorder=3,
                )  # fmt: skip
                if dotted:
                    axes.scatter(x[at], y[at], 3, color=colour if hollow else "white", lw=0, zorder=4)
    if "text" in mode:
        for at, text in enumerate(_each(trace.text, len(x))):
            if text and np.isfinite(x[at]):
                axes.annotate(_plain(text), (x[at], y[at]), (0, 4), textcoords="offset points", ha="center", size=7)


def _arrows(axes: Axes, x: np.ndarray, y: np.ndarray, trace: Any) -> None:
    """Heads that point away from the point before."""
    colour, _ = _colour(trace.marker.color)
    sizes = np.broadcast_to(trace.marker.size or 6, x.shape)
    for at in range(1, len(x)):
        if sizes[at] and np.isfinite([x[at - 1], y[at - 1], x[at], y[at]]).all():
            arrow = {"arrowstyle": "-|>", "color": colour, "lw": 0, "shrinkA": 0, "shrinkB": 0, "mutation_scale": 8}
            axes.annotate("", (x[at], y[at]), (x[at - 1], y[at - 1]), arrowprops=arrow, zorder=3)


def _annotate(axes: Mapping[tuple[str, str], Axes], annotation: Any) -> None:
    names = tuple(str(ref).removesuffix(" domain") for ref in (annotation.xref, annotation.yref))
    weight = "bold" if "<b>" in annotation.text else "normal"
    where = ALIGN[annotation.xanchor or "center"], ALIGN[annotation.yanchor or "middle"]
    at = axes[names]  # type: ignore[index]
    how = {"ha": where[0], "va": where[1], "weight": weight}
    at.annotate(_plain(annotation.text), (annotation.x, annotation.y), (0, 2), "axes fraction", "offset points", **how)


def _scene(canvas: Figure, title: str, figure: go.Figure, box: tuple[float, float, float, float]) -> None:
    from mpl_toolkits.mplot3d.axes3d import Axes3D

    axes: Axes3D = Axes3D(canvas, box)
    canvas.add_axes(axes)
    scene = figure.layout.scene
    for trace in figure.data:
        if trace.visible in (None, True):
            colour, alpha = _colour(trace.marker.color)
            size = (float(trace.marker.size or 4) * POINT) ** 2
            axes.scatter(trace.x, trace.y, trace.z, s=size, c=colour, alpha=trace.marker.opacity or alpha, lw=0)
    for name in "xyz":
        axis = getattr(axes, f"{name}axis")
        axis.set_ticklabels([])
        axis.set_tick_params(length=0)
        axis.line.set_color("#b9b5ab")
        axis.set_pane_color((1, 1, 1, 0))
        axis.labelpad = -12
        getattr(axes, f"set_{name}label")(_plain(scene[f"{name}axis"].title.text or name), color=SOFT, size=7)
    eye = scene.camera.eye
    flat = math.hypot(eye.x or 1.25, eye.y or 1.25)
    axes.view_init(
        elev=math.degrees(math.atan2(eye.z or 1.25, flat)), azim=math.degrees(math.atan2(eye.y or 1.25, eye.x or 1.25))
    )
    axes.set_box_aspect(None, zoom=0.92)
    if title:
        middle, top = box[0] + box[2] / 2, box[1] + box[3]
        canvas.text(middle, top, _plain(title), ha="center", va="top", size=8)


def _entries(figures: Sequence[go.Figure]) -> dict[str, Any]:
    """Name -> legend handle, of the traces that a legend shows, once each."""
    from matplotlib.lines import Line2D

    found: dict[str, Any] = {}
    for trace in (trace for figure in figures for trace in figure.data):
        name = _plain(trace.name or "")
        if not name or trace.showlegend is False or trace.visible not in (None, True) or name in found:
            continue
        mode = trace.mode or "lines+markers"
        line = {"ls": "none"}
        if "lines" in mode and trace.type == "scatter":
            colour, alpha = _colour(trace.line.color)
            line = {"ls": DASHES[trace.line.dash or "solid"], "color": colour, "alpha": alpha, "lw": _line(trace.line)}
        mark: dict[str, Any] = {}
        if "markers" in mode:
            colour, _ = _colour(trace.marker.color)
            shape, hollow, _ = _symbol(next(_each(trace.marker.symbol or "circle", 1)))
            mark = {"marker": shape, "mec": colour, "mfc": "none" if hollow else colour, "ms": 5}
        found[name] = Line2D([], [], **line, **mark)
    return found


def _legend(canvas: Figure, entries: Mapping[str, Any], top: float) -> None:
    if len(entries) < 2:
        return
    longest = max(map(len, entries))
    columns = max(1, min(len(entries), int(WIDTH * 14 / (longest + 5))))
    # matplotlib fills columns first, Plotly rows
    order = [at for column in range(columns) for at in range(column, len(entries), columns)]
    names, handles = list(entries), list(entries.values())
    canvas.legend(
        [handles[at] for at in order], [names[at] for at in order], ncols=columns, loc="upper left", frameon=False,
        bbox_to_anchor=(0.06, top), fontsize=7.5, borderaxespad=0, handletextpad=0.4, columnspacing=1.4,
    )  # fmt: skip


def _symbol(name: str) -> tuple[str, bool, bool]:
    """matplotlib's marker, whether it is hollow, whether it has a dot."""
    dotted = name.endswith("-dot")
    base = name.removesuffix("-dot")
    hollow = base.endswith("-open")
    base = base.removesuffix("-open")
    if base not in SYMBOLS:
        raise ValueError(f"symbol {name!r} cannot be drawn; static.py knows {', '.join(SYMBOLS)}")
    return SYMBOLS[base], hollow, dotted


def _each(values: Any, count: int) -> Iterator[Any]:
    yield from [values] * count if values is None or isinstance(values, str) else values


def _line(line: Any) -> float:
    return float(line.width or 2) * POINT


def _colour(text: str | None) -> tuple[str, float]:
    """A colour as matplotlib reads it, and its opacity."""
    if text and text.startswith("rgba("):
        red, green, blue, alpha = (float(part) for part in text[5:-1].split(","))
        return f"#{int(red):02x}{int(green):02x}{int(blue):02x}", alpha
    return text or INK, 1.0


def _power(value: float, _: int) -> str:
    exponent = round(math.log10(value)) if value > 0 else 0
    return "10" + str(exponent).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))


def _short(value: float, _: int) -> str:
    return f"{value:.3g}".replace("-", "−")


def _plain(text: str) -> str:
    """Text without Plotly's tags and entities."""
    return html.unescape(TAG.sub("", text.replace("<br>", "\n")))

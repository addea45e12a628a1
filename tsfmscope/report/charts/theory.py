"""Figures of Yu et al. 2026, Appendix J, and of the share of each bound that is used up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tsfmscope.report.charts import grid
from tsfmscope.report.charts.figures import COLOURS, SYMBOLS, apply_style, escape
from tsfmscope.report.charts.labels import (
    NEAR,
    Frame,
    Label,
    draw_labels,
    measure_text,
    sample_line,
    surround,
)
from tsfmscope.report.colorscale import GREY, interpolate_colour

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

# Size in pixels of a panel of two in the PNG, and of the single panel of a figure of one column.
PANEL, HEIGHT, COLUMN = 370, 270, 330
# Height in pixels of one statement in the plot of the bounds.
ROW = 19
# Factor between the sparse and the dense sketch at one number of heads.
DODGE = 1.05
# Least distance of labelled points in the left panel, as a share of its width.
APART = 0.02
ERROR, MISSED = "error of the attention output", "share of the row space missed"
X_TITLES = ("first dropped singular value", "width of the model")
INDEX = "index of the singular value, largest first"
# Smaller ratios are drawn at this value.
LOWEST = 1e-3


def draw_compression(frame: pd.DataFrame) -> go.Figure:
    """Draw Fig. 15: error against the first dropped singular value and against the width, with slopes 1 and ½."""
    import plotly.graph_objects as go

    figure, axes = go.Figure(), dict[str, dict[str, Any]]()
    for name, position, slope in (("J.1 rank", 0, 1.0), ("J.1 width", 1, 0.5)):
        part = frame[frame["experiment"] == name].sort_values("x")
        line, middle = _reference(part, slope, position), len(part) // 2
        figure.add_traces([_median(part, "error", position), line])
        x_range, y_range = _padded(part["x"]), _padded([*part["low"], *part["high"], *line.y])
        labels = (
            [Label(f"slope {'1' if slope == 1 else '½'}", line.x[middle], line.y[middle], GREY)] if len(part) else []
        )
        _label(figure, position, labels, Frame(x_range, y_range, PANEL, HEIGHT, log_x=True, log_y=True))
        ticks = _list(part, "x") if position else None
        axes |= _named(
            position,
            grid.make_fixed_log_axis(X_TITLES[position], x_range, ticks),
            grid.make_fixed_log_axis(ERROR, y_range),
        )
    return _lay_out(figure, ["error by rank", "error by width"], axes)


def draw_sketching(frame: pd.DataFrame) -> go.Figure:
    """Draw Fig. 16: singular values of X with the errors of sketches, and these errors against the number of heads.

    On the left, the median error of h heads stands at the index whose singular value it equals.
    """
    import plotly.graph_objects as go

    spectrum = frame[frame["experiment"] == "J.2 spectrum"].sort_values("x")
    sparse = frame[frame["experiment"] == "J.2 sparse distance"].sort_values("x")
    index = frame[frame["experiment"] == "J.2 sparse"].sort_values("x")
    line = {"color": GREY, "width": 2}
    figure = go.Figure(go.Scatter(x=_list(spectrum, "x"), y=_list(spectrum, "y"), mode="lines", line=line))
    points = _median(sparse, "error of a sketch", 0).update(x=_list(index, "y"), error_y=None, mode="markers")
    figure.add_trace(points)
    heads = [f"{int(h)} head{'' if h == 1 else 's'}" for h in index["x"]]
    last = float(spectrum["x"].max()) if len(spectrum) else 1.0
    # The first points lie close together: those nearer than APART to the last labelled one have no label.
    labels, free = [], -1.0
    for text, x, y in zip(heads, points.x, points.y, strict=True):
        if x >= free:
            labels.append(Label(text, x, y, COLOURS[0]))
            free = x + APART * last
    x_range, y_range = (0.0, 1.05 * last), _padded([*spectrum["y"], *sparse["y"]])
    _label(figure, 0, labels, Frame(x_range, y_range, PANEL, HEIGHT, log_y=True))
    axes = _named(
        0, grid.make_axis(INDEX, range=list(x_range)), grid.make_fixed_log_axis("singular value of X", y_range)
    )

    both = frame[frame["experiment"].isin(["J.2 sparse distance", "J.2 dense distance"])]
    x_range, y_range = _padded(both["x"]), _padded([*both["low"], *both["high"]])
    labels = []
    for position, kind in enumerate(("sparse", "dense")):
        away = frame[frame["experiment"] == f"J.2 {kind} distance"].sort_values("x")
        # The two coincide, so they stand side by side.
        shifted = [DODGE ** (2 * position - 1) * x for x in _list(away, "x")]
        trace = _median(away, f"{kind} sketch", 1, position).update(x=shifted)
        figure.add_trace(trace)
        if len(away):
            at = max(0, len(away) - 3)
            labels.append(Label(f"{kind} sketch", shifted[at], trace.y[at], COLOURS[position]))
    _label(figure, 1, labels, Frame(x_range, y_range, PANEL, HEIGHT, log_x=True, log_y=True))
    ticks = sorted({float(x) for x in both["x"]})
    axes |= _named(
        1, grid.make_fixed_log_axis("number of heads", x_range, ticks), grid.make_fixed_log_axis(MISSED, y_range)
    )
    return _lay_out(figure, ["errors as singular values of X", "errors by number of heads"], axes)


def draw_flow(frame: pd.DataFrame) -> go.Figure:
    """Draw Fig. 17: relative singular values of X, and of MH-Attention(X) + X for every number of heads."""
    import plotly.graph_objects as go

    figure = go.Figure()
    spectra = frame[frame["experiment"] == "J.3 spectrum"].sort_values(["heads", "x"])
    numbers = sorted({int(heads) for heads in spectra["heads"]})
    labels = []
    for position, heads in enumerate(numbers):
        part = spectra[spectra["heads"] == heads]
        name = "input X" if heads == 0 else f"{heads} head{'' if heads == 1 else 's'}"
        colour = GREY if heads == 0 else interpolate_colour(position - 1, max(2, len(numbers) - 1))
        line = {"width": 2, "color": colour, "dash": "dash" if heads == 0 else "solid"}
        x, y = _list(part, "x"), _list(part, "y")
        figure.add_trace(go.Scatter(x=x, y=y, mode="lines", name=name, line=line, showlegend=False))
        labels.append(Label(name, x[-1], y[-1], colour))
    last = float(spectra["x"].max()) if len(spectra) else 1.0
    room = (max((measure_text(label.text) for label in labels), default=0) + 2 * NEAR) / COLUMN
    frame_of = Frame((0.0, last / (1 - room)), _padded(spectra["y"]), COLUMN, HEIGHT, log_y=True)
    _label(figure, 0, labels, frame_of)
    figure = apply_style(figure)
    figure.update_xaxes(grid.make_axis(INDEX, range=list(frame_of.x)))
    figure.update_yaxes(grid.make_fixed_log_axis("singular value ÷ largest", frame_of.y))
    margin = {"l": 60, "r": 14, "t": 12, "b": 48}
    return figure.update_layout(height=HEIGHT + 60, margin=margin, meta={"one_column": True})


def draw_ratios(frame: pd.DataFrame) -> go.Figure:
    """Draw the share of each bound that random instances use up: median and largest ratio, with a line at 1.

    frame: experiment, form, n, violations, ratio_median, ratio_largest. One row per statement and form,
    sorted by the largest ratio. Filled: printed; open: repaired.
    """
    import plotly.graph_objects as go

    rows = frame.sort_values(["ratio_largest", "experiment"]).reset_index(drop=True)
    figure = go.Figure()
    ends = [float(rows["ratio_largest"].max()), 1.0] if len(rows) else [1.0]
    line = {"color": GREY, "width": 1.5, "dash": "dash"}
    figure.add_trace(
        go.Scatter(x=[1, 1], y=[-0.7, len(rows) - 0.3], mode="lines", name="the bound", line=line, hoverinfo="skip")
    )
    for column, position, size in (("ratio_median", 0, 6), ("ratio_largest", 1, 10)):
        for form in ("printed", "repaired"):
            part = rows[rows["form"] == form]
            marker = {
                "color": COLOURS[position],
                "symbol": "circle" if form == "printed" else "circle-open",
                "size": size,
            }
            figure.add_trace(
                go.Scatter(
                    x=[max(float(value), LOWEST) for value in part[column]],
                    y=part.index.tolist(),
                    mode="markers",
                    name=f"{column.removeprefix('ratio_')}, {form}",
                    marker={**marker, "line": {"width": 1.5, "color": COLOURS[position]}},
                    customdata=[
                        [escape(name), int(n), int(failed)]
                        for name, n, failed in zip(part["experiment"], part["n"], part["violations"], strict=True)
                    ],
                    hovertemplate="%{customdata[0]}<br>%{x:.3g} of the bound"
                    "<br>%{customdata[2]} of %{customdata[1]} instances fail<extra></extra>",
                )
            )
    labels = [
        escape(f"{name}, {form}" + (f": {failed:,} of {n:,} fail" if failed else ""))
        for name, form, failed, n in zip(rows["experiment"], rows["form"], rows["violations"], rows["n"], strict=True)
    ]
    high = float(np.ceil(np.log10(max(ends)) + 0.2))
    figure = apply_style(figure)
    figure.update_xaxes(
        type="log", range=[np.log10(LOWEST) - 0.2, high], dtick=2, exponentformat="power",
        title_text="share of the bound that is used up; beyond 1 it fails",
    )  # fmt: skip
    figure.update_yaxes(tickvals=list(range(len(rows))), ticktext=labels, range=[-0.7, len(rows) - 0.3])
    return figure.update_layout(height=ROW * len(rows) + 130, margin={"l": 290, "r": 16, "t": 12, "b": 56})


def _lay_out(figure: go.Figure, titles: Sequence[str], axes: dict[str, dict[str, Any]]) -> go.Figure:
    """Lay out two panels without legend, each with its own axes."""
    figure.update_traces(showlegend=False)
    bare = grid.make_axis("")
    shape = grid.Shape(columns=2, narrow=1, row=HEIGHT, shared=False)
    layout = grid.remove_legend(grid.lay_out(titles, bare, bare, shape))
    return apply_style(figure).update_layout(**grid.change_axes(_widen(layout), axes))


def _widen(layout: dict[str, Any]) -> dict[str, Any]:
    """Return the layout with more space between two panels side by side, for the title of the right one."""
    return {
        **layout,
        "xaxis": {**layout["xaxis"], "domain": [0.0, 0.45]},
        "xaxis2": {**layout["xaxis2"], "domain": [0.55, 1.0]},
    }


def _named(position: int, x: dict[str, Any], y: dict[str, Any]) -> dict[str, dict[str, Any]]:
    names = grid.axis_names(position)
    return {names["xaxis"].replace("x", "xaxis"): x, names["yaxis"].replace("y", "yaxis"): y}


def _padded(values: Any) -> tuple[float, float]:
    """Return the range of the positive values as log10, with some space."""
    logs = np.log10([value for value in map(float, values) if value > 0] or [1.0])
    room = max(0.06 * float(logs.max() - logs.min()), 0.05)
    return round(float(logs.min()) - room, 3), round(float(logs.max()) + room, 3)


def _label(figure: go.Figure, position: int, labels: Sequence[Label], frame: Frame) -> None:
    """Write labels into a panel where they cover none of its lines and marks."""
    where = grid.axis_names(position)
    traces = [trace for trace in figure.data if (trace.xaxis or "x") == where["xaxis"] and len(trace.x)]
    lines = [trace for trace in traces if "lines" in trace.mode]
    marks = [trace for trace in traces if "markers" in trace.mode]
    obstacles = [np.zeros((0, 2)), *(sample_line(trace.x, trace.y, frame) for trace in lines)]
    obstacles += [surround(frame.to_pixels(trace.x, trace.y)) for trace in marks]
    figure.add_traces([trace.update(where) for trace in draw_labels(labels, np.concatenate(obstacles), frame)])


def _median(part: pd.DataFrame, name: str, panel: int, position: int = 0) -> go.Scatter:
    """Draw the median over seeds, with the range as whiskers."""
    import plotly.graph_objects as go

    middle, low, high = (part[column].to_numpy(dtype=float) for column in ("y", "low", "high"))
    return go.Scatter(
        x=_list(part, "x"),
        y=middle.tolist(),
        mode="lines+markers",
        name=name,
        line={"color": COLOURS[position], "width": 2},
        marker={"symbol": SYMBOLS[position], "size": 7},
        error_y={"array": (high - middle).tolist(), "arrayminus": (middle - low).tolist(), "thickness": 1, "width": 3},
        hovertemplate="%{x:.3g}<br>%{y:.3g}<extra></extra>",
        **grid.axis_names(panel),
    )


def _reference(part: pd.DataFrame, slope: float, panel: int) -> go.Scatter:
    """Draw a line of this slope at 0.4 times the height of the middle point (log axes)."""
    import plotly.graph_objects as go

    x, y = part["x"].to_numpy(dtype=float), part["y"].to_numpy(dtype=float)
    at = len(x) // 2
    heights = (0.4 * y[at] * (x / x[at]) ** slope).tolist() if len(x) else []
    line = {"color": GREY, "width": 1.5, "dash": "dash"}
    return go.Scatter(
        x=x.tolist(), y=heights, mode="lines", name="reference", line=line, hoverinfo="skip", **grid.axis_names(panel)
    )


def _list(part: pd.DataFrame, column: str) -> list[float]:
    return [float(value) for value in part[column]]

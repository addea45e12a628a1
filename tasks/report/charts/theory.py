"""Figures of Yu et al. 2026, Appendix J, and of the share of each bound that is used up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tsfmscope.tasks.report.charts import grid
from tsfmscope.tasks.report.charts.figures import COLOURS, SYMBOLS, apply_style, escape
from tsfmscope.tasks.report.colorscale import GREY

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

LEFT, RIGHT = [0.0, 0.44], [0.56, 1.0]
# Height in pixels of one statement in the plot of the bounds.
ROW = 19
# Smaller ratios are drawn at this value.
LOWEST = 1e-3


def draw_compression(frame: pd.DataFrame) -> go.Figure:
    """Draw Fig. 15: error against σ_{d̃+1} and against d, with lines of slopes 1 and 1/2."""
    figure = _panels()
    for name, position, slope in (("J.1 rank", 0, 1.0), ("J.1 width", 1, 0.5)):
        part = frame[frame["experiment"] == name].sort_values("x")
        figure.add_trace(_median(part, position, f"{'error by rank' if position == 0 else 'error by width'}", position))
        figure.add_trace(_reference(part, slope, f"slope {'1' if slope == 1 else '½'}", position))
    return _log_axes(figure, ("σ of index d̃ + 1", "‖Y − Ỹ‖"), ("width d", "")).update_layout(yaxis={"dtick": 1})


def draw_sketching(frame: pd.DataFrame) -> go.Figure:
    """Draw Fig. 16: singular values of X with the sketches' errors, and the error of eq. 30 against h.

    On the left, the median error of h heads stands at the index whose singular value it equals.
    """
    import plotly.graph_objects as go

    figure = _panels()
    spectrum = frame[frame["experiment"] == "J.2 spectrum"].sort_values("x")
    line = {"color": GREY, "width": 2}
    figure.add_trace(go.Scatter(x=_list(spectrum, "x"), y=_list(spectrum, "y"), mode="lines", name="σ of X", line=line))
    for position, kind in enumerate(("sparse", "dense")):
        away = frame[frame["experiment"] == f"J.2 {kind} distance"].sort_values("x")
        figure.add_trace(_median(away, position, f"{kind} sketch", 1))
    away = frame[frame["experiment"] == "J.2 sparse distance"].sort_values("x")
    index = frame[frame["experiment"] == "J.2 sparse"].sort_values("x")
    trace = _median(away, 0, "error of h heads at its σ", 0).update(x=_list(index, "y"), error_y=None)
    trace.update(mode="markers+text", text=_label_points(index, spectrum), textposition="top right")
    figure.add_trace(trace)
    return _log_axes(figure, ("index j", "σⱼ"), ("heads h", "eq. 30")).update_layout(
        xaxis={"type": "linear"}, yaxis={"dtick": 2}, yaxis2={"dtick": 1}
    )


def _label_points(index: pd.DataFrame, spectrum: pd.DataFrame) -> list[str]:
    """Return labels for the points that stand clear of the previous one, "" for the others.

    The first points overlap; the very first one is never labelled.
    """
    steps = np.diff(_list(index, "y"), prepend=-np.inf)
    wide = 0.04 * float(spectrum["x"].max()) if len(spectrum) else 0.0
    apart = (steps > wide) & (np.arange(len(steps)) > 0)
    return [f"h={int(heads)}" if alone else "" for heads, alone in zip(index["x"], apart, strict=True)]


def draw_flow(frame: pd.DataFrame) -> go.Figure:
    """Draw Fig. 17: relative singular values of X, and of MH-Attention(X) + X for every h."""
    import plotly.graph_objects as go

    figure = go.Figure()
    spectra = frame[frame["experiment"] == "J.3 spectrum"].sort_values(["heads", "x"])
    for position, heads in enumerate(sorted({int(heads) for heads in spectra["heads"]})):
        part = spectra[spectra["heads"] == heads]
        name = "input X" if heads == 0 else f"h = {heads}"
        line = {"width": 2, "color": GREY if position == 0 else COLOURS[(position - 1) % len(COLOURS)]}
        line |= {"dash": "dash" if position == 0 else "solid"}
        figure.add_trace(go.Scatter(x=_list(part, "x"), y=_list(part, "y"), mode="lines", name=name, line=line))
    figure.update_xaxes(title_text="index j")
    figure.update_yaxes(title_text="σⱼ / σ₁", type="log", dtick=1, exponentformat="power")
    return apply_style(figure)


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


def _panels() -> go.Figure:
    import plotly.graph_objects as go

    return apply_style(go.Figure())


def _log_axes(figure: go.Figure, left_titles: Sequence[str], right_titles: Sequence[str]) -> go.Figure:
    def axis(title: str) -> dict[str, Any]:
        return {"type": "log", "exponentformat": "power", "title": {"text": title}}

    return figure.update_layout(
        xaxis={**axis(left_titles[0]), "domain": LEFT},
        yaxis=axis(left_titles[1]),
        xaxis2={**axis(right_titles[0]), "domain": RIGHT},
        yaxis2={**axis(right_titles[1]), "anchor": "x2"},
    )


def _median(part: pd.DataFrame, position: int, name: str, panel: int) -> go.Scatter:
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


def _reference(part: pd.DataFrame, slope: float, name: str, panel: int) -> go.Scatter:
    """Draw a line of this slope at 0.4 times the height of the middle point (log axes)."""
    import plotly.graph_objects as go

    x, y = part["x"].to_numpy(dtype=float), part["y"].to_numpy(dtype=float)
    at = len(x) // 2
    heights = (0.4 * y[at] * (x / x[at]) ** slope).tolist() if len(x) else []
    line = {"color": GREY, "width": 1.5, "dash": "dash" if slope == 1 else "dot"}
    return go.Scatter(
        x=x.tolist(), y=heights, mode="lines", name=name, line=line, hoverinfo="skip", **grid.axis_names(panel)
    )


def _list(part: pd.DataFrame, column: str) -> list[float]:
    return [float(value) for value in part[column]]

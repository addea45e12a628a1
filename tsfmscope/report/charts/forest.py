"""Forest plot of the correlation of isotropy with forecast error: one row per data set, and their mean."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tsfmscope.report import colorscale
from tsfmscope.report.charts.figures import apply_style, escape, shorten_name
from tsfmscope.report.charts.grid import draw_guide, make_axis

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

# Height of a row and of the text above and the axis below, in pixels.
ROW, HEAD, FOOT = 17, 88, 44
# Pixels from the top of the rows to the legend, which hold the headline.
LEGEND = 40
# Longest name of a data set on the axis and the part of its end that is kept, in characters; pixels of a character.
NAME, TAIL, CHARACTER = 26, 15, 6.7
MARKS = ("circle", "circle-open", "diamond", "diamond-open")
# Position of the mean on the vertical axis; the data sets stand at 1, 2, ... above it.
MEAN = 0
LIGHT = colorscale.set_opacity(colorscale.GREY, 0.13)


def draw_forest(rows: pd.DataFrame, mean: Mapping[str, Any], conditions: Sequence[str]) -> go.Figure:
    """Draw one row per data set, from agreement with the claim to disagreement, and their mean at the bottom.

    rows: dataset, condition, n_models, spearman, low, high. A data set has one mark per condition; missing
    limits are not drawn.
    mean: spearman, low, high, p of the mean over all rows; missing values are not drawn.
    conditions: in the study's order; the first is filled, the second open.
    """
    import plotly.graph_objects as go

    names = order_datasets(rows)
    heights = {name: len(names) - position for position, name in enumerate(names)}
    shown = [name for name in conditions if name in set(rows["condition"])]
    top = len(names) + 1.5
    figure = go.Figure(
        [
            fill_area([-1.1, 0, 0, -1.1], [-0.7, -0.7, top, top]),
            draw_guide([0, 0], [-0.7, top]),
            draw_guide([-1.1, 1.1], [0.5, 0.5], width=0.5),
            write_text(-1.1, len(names) + 1, "less error (claim)", "middle right"),
            write_text(1.1, len(names) + 1, "more error", "middle left"),
        ]
    )
    for position, condition in enumerate(shown):
        part = rows[rows["condition"] == condition]
        # Marks of several conditions stand below each other, since equal values would hide each other.
        shift = 0.17 * (len(shown) - 1 - 2 * position)
        figure.add_traces(_rows(part, heights, shift, condition, position, named=len(shown) > 1))
    figure.add_traces(_mean(mean))
    shortened = [shorten_name(name, NAME, TAIL) for name in names[::-1]]
    left = 14 + CHARACTER * max(map(len, [*shortened, _mean_name(rows)]))
    labels = [f"<b>{_mean_name(rows)}</b>", *map(escape, shortened)]
    inner = ROW * (len(names) + 2.2)
    return apply_style(figure).update_layout(
        height=HEAD + FOOT + inner,
        legend={"y": 1 + LEGEND / inner},
        margin={"l": left, "r": 14, "t": HEAD, "b": FOOT},
        annotations=[_headline(mean)],
        meta={"one_column": True},
        xaxis=make_axis(
            "Spearman ρ over models", range=[-1.1, 1.1], tickvals=[-1, -0.5, 0, 0.5, 1],
            ticktext=["−1", "−0.5", "0", "0.5", "1"],
        ),
        yaxis=make_axis(
            "", range=[-0.7, top], tickvals=list(range(len(labels))), ticktext=labels, showgrid=False,
        ),
    )  # fmt: skip


def order_datasets(rows: pd.DataFrame) -> list[str]:
    """Return the data sets by their mean correlation over conditions, the most negative first."""
    means = rows.groupby("dataset")["spearman"].mean()
    return sorted(map(str, means.index), key=lambda name: (means[name], name))


def describe_mean(mean: Mapping[str, Any]) -> tuple[str, str]:
    """Return the mean with its interval, and its p; a text is empty without its number."""
    if not is_number(mean["spearman"]):
        return "", ""
    words = f"Mean ρ = {format_signed(mean['spearman'])}"
    if is_number(mean["low"]):
        words += f" (95 % interval {format_signed(mean['low'])} to {format_signed(mean['high'])})"
    return words, f"p = {mean['p']:.2g}, permuting models" if is_number(mean["p"]) else ""


def _rows(
    part: pd.DataFrame, heights: Mapping[str, int], shift: float, condition: str, position: int, *, named: bool
) -> list[go.Scatter]:
    import plotly.graph_objects as go

    y = [heights[name] + shift for name in part["dataset"]]
    limited = part["low"].notna() & part["high"].notna()
    whiskers = [
        draw_guide([low, high], [at, at])
        for low, high, at, known in zip(part["low"], part["high"], y, limited, strict=True)
        if known
    ]
    symbol = MARKS[min(position, len(MARKS) - 1)]
    marks = go.Scatter(
        x=part["spearman"].tolist(),
        y=y,
        mode="markers",
        name=escape(condition),
        showlegend=named,
        marker={
            "symbol": symbol,
            "size": 8,
            "color": colorscale.GREY,
            "line": {"width": 1.5, "color": colorscale.GREY},
        },
        customdata=[
            [escape(name), escape(condition), int(n)] for name, n in zip(part["dataset"], part["n_models"], strict=True)
        ],
        hovertemplate="<b>%{customdata[0]}</b><br>%{customdata[1]}, %{customdata[2]} models"
        "<br>ρ %{x:.2f}<extra></extra>",
    )
    return [*whiskers, marks]


def _mean(mean: Mapping[str, Any]) -> list[go.Scatter]:
    import plotly.graph_objects as go

    if not is_number(mean["spearman"]):
        return []
    marker = {"symbol": "diamond", "size": 13, "color": colorscale.GREY}
    words = ", ".join(filter(None, describe_mean(mean)))
    interval = [draw_guide([mean["low"], mean["high"]], [MEAN, MEAN], width=3)] if is_number(mean["low"]) else []
    return [
        *interval,
        go.Scatter(
            x=[mean["spearman"]], y=[MEAN], mode="markers", name="mean", marker=marker, showlegend=False,
            hovertemplate=f"{escape(words)}<extra></extra>",
        ),
    ]  # fmt: skip


def _mean_name(rows: pd.DataFrame) -> str:
    return f"mean of {len(rows)}"


def _headline(mean: Mapping[str, Any]) -> dict[str, Any]:
    """Return the annotation above the plot, at its right edge, whose place does not depend on the names' width."""
    first, second = describe_mean(mean)
    text = f"<b>{first or 'ρ is undefined'}</b><br>{second or '&nbsp;'}"
    where = {"xref": "x domain", "yref": "y domain", "x": 1, "y": 1}
    return {**where, "text": text, "showarrow": False, "xanchor": "right", "yanchor": "bottom", "align": "right"}


def write_text(x: float, y: float, text: str, position: str) -> go.Scatter:
    """Write a small text at a point. position: Plotly's `textposition`."""
    import plotly.graph_objects as go

    style = {"mode": "text", "text": [text], "textposition": position, "textfont": {"size": 10}}
    return go.Scatter(x=[x], y=[y], **style, hoverinfo="skip", showlegend=False)


def fill_area(x: Sequence[float], y: Sequence[float], colour: str = LIGHT) -> go.Scatter:
    """Fill the area inside a line, by default in light grey."""
    import plotly.graph_objects as go

    return go.Scatter(x=x, y=y, mode="none", fill="toself", fillcolor=colour, hoverinfo="skip", showlegend=False)


def is_number(value: Any) -> bool:
    """Return whether a value is a finite number, neither None nor NaN."""
    return value is not None and math.isfinite(value)


def format_signed(value: float) -> str:
    """Return a number with two decimals and a true minus sign."""
    return f"{value:.2f}".replace("-", "−")

"""Arrows from condition to condition, one row per data set (Shelim et al. 2025, Figs. 5, 6, 8)."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tsfmscope.report import colorscale
from tsfmscope.report.charts import grid
from tsfmscope.report.charts.figures import (
    AXES,
    ERROR_TITLE,
    ISOTROPY_TITLES,
    apply_style,
    choose_colour,
    escape,
    shorten_name,
)
from tsfmscope.report.charts.panels import choose_measure, number_datasets

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

# Pixels of a row of one arrow, and of the space between two data sets.
ARROW, BETWEEN = 15, 8
# Longest name of a data set on the axis, and the part of its end that is kept, in characters; pixels of a
# character.
NAME, TAIL, CHARACTER = 30, 18, 6.7
START = {"symbol": "circle-open", "size": 10, "line": {"width": 1.5}}
END = {"size": 9}
# Space for the marks, as a share of the axis of the error.
MARKS = 0.12
# Marks at the right: both quantities change in the same direction, or not.
SAME, OPPOSITE = "✓", "✗"


def draw_pairs(
    frame: pd.DataFrame, models: Sequence[str], conditions: Sequence[str], *, of_paper: bool = True
) -> go.Figure:
    """Draw changes of isotropy (left) and of error (right), one arrow per model and data set.

    frame: model, dataset, domain, paper, condition, the measure, nmse. A value without a logarithm is not
    drawn; the other values of its data set are.
    models: the models of the whole page, which determine the colours.
    conditions: in the study's order: a ring is the first, a triangle each further one.
    of_paper: whether to draw the printed |ζ′| or |ζ′ − its null mean|.

    A mark at the right tells whether both changed in the same direction, from the first condition to the
    last.
    """
    import plotly.graph_objects as go

    rows = pair_rows(frame, of_paper=of_paper)
    shown = [name for name in conditions if name in set(rows["condition"])]
    shown_models = [name for name in dict.fromkeys([*models, *rows["model"]]) if name in set(rows["model"])]
    datasets = rows.sort_values(["order", "number"])["dataset"].unique().tolist()
    step = BETWEEN + ARROW * len(shown_models)
    middle = {str(name): float(len(datasets) - 1 - position) * step for position, name in enumerate(datasets)}
    quantities = {"isotropy": AXES[choose_measure(of_paper)], "nmse": "NMSE"}
    traces = [*_model_keys(shown_models, models), *_condition_keys(shown)]
    for (panel, (column, symbol)), model in itertools.product(enumerate(quantities.items()), shown_models):
        shift = ARROW * ((len(shown_models) - 1) / 2 - shown_models.index(model))
        part = rows[rows["model"] == model]
        colour = choose_colour(model, models)
        axes = grid.axis_names(panel)
        arrows = _arrows(part, column, symbol, shown, {name: y + shift for name, y in middle.items()}, colour)
        traces += [trace.update(axes) for trace in arrows]
    edge = _place_marks(_log_axis(rows["nmse"], "")["range"])
    for model in shown_models:
        shift = ARROW * ((len(shown_models) - 1) / 2 - shown_models.index(model))
        marks = {name: mark for name, mark in compare(rows[rows["model"] == model], shown).items() if mark}
        heights = [middle[name] + shift for name in marks]
        traces.append(
            _marks(list(marks.values()), edge, heights, choose_colour(model, models)).update(xaxis="x2", yaxis="y2")
        )
    return apply_style(go.Figure(traces)).update_layout(_lay_out(rows, datasets, middle, step, of_paper))


def pair_rows(frame: pd.DataFrame, *, of_paper: bool = True) -> pd.DataFrame:
    """Return all rows with their place, and with NaN where isotropy or error has no logarithm."""
    rows = number_datasets(frame, of_paper=of_paper)
    values = {"isotropy": rows[choose_measure(of_paper)].astype(float).abs(), "nmse": rows["nmse"].astype(float)}
    kept = {name: column.where(np.isfinite(column) & (column > 0)) for name, column in values.items()}
    return rows.assign(**kept)


def compare(rows: pd.DataFrame, conditions: Sequence[str]) -> dict[str, str]:
    """Return data set -> mark: whether isotropy and error changed in the same direction; "" if that is unknown.

    rows: of one model, as `pair_rows` returns them. The directions are those from the first to the last
    condition.
    """
    marks = {}
    for name, part in rows.groupby("dataset", sort=False):
        ends = part.set_index("condition")[["isotropy", "nmse"]].reindex([conditions[0], conditions[-1]])
        isotropy, error = (float(ends[column].iloc[1] - ends[column].iloc[0]) for column in ends)
        product = isotropy * error
        marks[str(name)] = SAME if product > 0 else OPPOSITE if product < 0 else ""
    return marks


def count_same(rows: pd.DataFrame, conditions: Sequence[str]) -> tuple[int, int]:
    """Return in how many pairs both quantities change in the same direction, and the number of pairs."""
    marks = [mark for _, part in rows.groupby("model") for mark in compare(part, conditions).values() if mark]
    return marks.count(SAME), len(marks)


def _arrows(
    part: pd.DataFrame, column: str, symbol: str, conditions: Sequence[str], heights: dict[str, float], colour: str
) -> list[go.Scatter]:
    """Return the lines, the rings and the triangles of one model in one panel."""
    import plotly.graph_objects as go

    values = part.pivot(index="dataset", columns="condition", values=column).reindex(columns=list(conditions))
    x: list[float | None] = []
    y: list[float | None] = []
    for name, row in values.iterrows():
        ends = row.dropna().tolist()
        x += [*ends, None]
        y += [*([heights[str(name)]] * len(ends)), None]
    traces = [grid.draw_guide(x, y, color=colour, width=2)]
    model = str(part["model"].iloc[0])
    for position, condition in enumerate(conditions):
        found = values[condition].dropna()
        before = values[list(conditions[:position])].ffill(axis=1).iloc[:, -1] if position else found
        steps = (found - before[found.index]).tolist()
        pointed = ["triangle-left" if step < 0 else "triangle-right" for step in steps]
        style = {**END, "symbol": pointed} if position else {**START}
        traces.append(
            go.Scatter(
                x=found.tolist(),
                y=[heights[str(name)] for name in found.index],
                mode="markers",
                marker={**style, "color": colour, "line": {"width": 1.5, "color": colour}},
                name=escape(model),
                showlegend=False,
                customdata=[[escape(name), escape(model), escape(condition)] for name in found.index],
                hovertemplate="<b>%{customdata[0]}</b><br>%{customdata[1]} · %{customdata[2]}"
                f"<br>{symbol} %{{x:.3g}}<extra></extra>",
            )
        )
    return traces


def _marks(marks: Sequence[str], x: float, heights: Sequence[float], colour: str) -> go.Scatter:
    import plotly.graph_objects as go

    return go.Scatter(
        x=[x] * len(heights), y=heights, mode="text", text=marks, textposition="middle center", cliponaxis=False,
        textfont={"size": 13, "color": colour}, hoverinfo="skip", showlegend=False,
    )  # fmt: skip


def _model_keys(shown_models: Sequence[str], models: Sequence[str]) -> list[go.Scatter]:
    """Return a legend entry per model where there are several."""
    colours = [(name, choose_colour(name, models)) for name in shown_models] if len(shown_models) > 1 else []
    return [_key(name, {"symbol": "square", "size": 9, "color": colour}) for name, colour in colours]


def _condition_keys(conditions: Sequence[str]) -> list[go.Scatter]:
    styles = [START, *({**END, "symbol": "triangle-right"} for _ in conditions[1:])]
    grey = {"color": colorscale.GREY, "line": {"width": 1.5, "color": colorscale.GREY}}
    return [_key(name, {**style, **grey}) for name, style in zip(conditions, styles, strict=True)]


def _key(name: str, marker: dict[str, Any]) -> go.Scatter:
    import plotly.graph_objects as go

    return go.Scatter(x=[None], y=[None], mode="markers", name=escape(name), marker=marker)


def _log_axis(values: pd.Series, title: str) -> dict[str, Any]:
    """Return a logarithmic axis; one of fewer than two decades also has labels between the powers of ten."""
    axis = grid.make_log_axis(values.dropna(), title)
    low, high = axis["range"]
    return axis if high - low > 2 else {**axis, "dtick": None, "tick0": None, "nticks": 4}


def _place_marks(limits: Sequence[float]) -> float:
    """Return the value at which the marks stand, right of an axis with these limits (decimal exponents)."""
    low, high = limits
    return float(10.0 ** (high + MARKS * (high - low) / 2))


def _lay_out(
    rows: pd.DataFrame, datasets: Sequence[str], middle: dict[str, float], step: float, of_paper: bool
) -> dict[str, Any]:
    names = [shorten_name(name, NAME, TAIL) for name in datasets]
    y = grid.make_axis(
        "", range=[-step / 2, (len(datasets) - 0.5) * step], tickvals=[middle[name] for name in datasets],
        ticktext=list(map(escape, names)), showgrid=False,
    )  # fmt: skip
    isotropy = _log_axis(rows["isotropy"], ISOTROPY_TITLES[choose_measure(of_paper)])
    error = _log_axis(rows["nmse"], ERROR_TITLE)
    low, high = error["range"]
    error["range"] = [low, high + MARKS * (high - low)]
    shape = grid.Shape(columns=2, narrow=1, row=max(60, round(len(datasets) * step)), shared=False)
    layout = grid.lay_out(["Isotropy", "Error"], isotropy, y, shape)
    layout = grid.change_axes(
        layout, {"xaxis": {"title": isotropy["title"]}, "xaxis2": error, "yaxis2": {"matches": "y"}}
    )
    layout["yaxis2"] = {**layout["yaxis2"], "showticklabels": False}
    left = 14 + CHARACTER * max(map(len, names))
    margins = {**layout["margin"], "l": left}
    header = {"xref": "x2 domain", "yref": "y2 domain", "x": 1, "y": 1, "text": "as claimed"}
    aligned = {"showarrow": False, "xanchor": "right", "yanchor": "bottom", "font": {"size": 11}}
    layout["annotations"] = [*layout["annotations"], {**header, **aligned}]
    return {**layout, "margin": margins, "meta": {"narrow": {**layout["meta"]["narrow"], "margin": margins}}}

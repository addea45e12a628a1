"""Functions that draw a data frame as a Plotly figure.

The page sets the colours of text and grid (see page.js).
"""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

# The first three are from Okabe and Ito 2008. Each further colour is the one farthest from all
# before it as seen with colour blindness (Machado 2009). All have a contrast of at least 3 to the
# page, light and dark.
COLOURS = (
    "#0072B2", "#D55E00", "#009E73", "#C977A5", "#5A783C", "#A54B78", "#1E96F0", "#87964B",
    "#E16978", "#9687C3", "#A55A1E", "#0F784B", "#A55A96", "#96962D", "#C33C5A", "#7887D2", "#2D96A5",
)  # fmt: skip
SYMBOLS = ("circle", "diamond", "square", "triangle-up", "cross", "star", "hexagon", "triangle-down")
DASHES = ("solid", "dash", "dot", "dashdot")
# Isotropy measures of the scatter plots, which show their absolute values; AXES has the axis
# titles.
CORRECTED, PRINTED = "zeta_adjusted_corrected", "zeta_adjusted"
AXES = {CORRECTED: "|ζ′ − null|", PRINTED: "|ζ′|"}
# End of the captions of figures that draw such a measure.
NOT_EVENNESS = (
    " ζ′ − null does not show how evenly directions are used; IsoScore and d(0.8) ÷ width, in Models at a glance, do."
)
ISOTROPY_TITLES = {measure: f"adjusted cosine {symbol}" for measure, symbol in AXES.items()}
ERROR_TITLE = "forecast error (NMSE)"


def escape(text: object) -> str:
    """Return text for Plotly labels with HTML characters escaped, because Plotly interprets tags.

    Braces are not escaped, although Plotly replaces %{...} in hover templates.
    """
    return html.escape(str(text), quote=True)


def draw_nmse_against_isotropy(frame: pd.DataFrame, models: Sequence[str] = ()) -> go.Figure:
    """Draw NMSE against |ζ′ minus its null mean| on log axes, one point per model, data set and condition.

    Colour and symbol show the model; the first condition is filled, all others are open. A thin line joins
    the models of one data set and condition. Rows without positive values on both axes are left out.

    models: the models of the whole page, which determine the colours; by default those of the frame.
    """
    import plotly.graph_objects as go

    rows = select_drawable(frame)
    figure = go.Figure()
    models, conditions = models or distinct_values(rows, "model"), distinct_values(rows, "condition")
    x, y = _links(rows)
    thin = {"width": 1, "color": "rgba(128,128,128,0.45)"}
    figure.add_trace(
        go.Scatter(x=x, y=y, mode="lines", name="same data set", line=thin, hoverinfo="skip", showlegend=len(x) > 0)
    )
    for (model, condition), part in rows.groupby(["model", "condition"], sort=True):
        figure.add_trace(
            go.Scatter(
                x=part["isotropy"].to_numpy(),
                y=part["nmse"].to_numpy(),
                mode="markers",
                name=f"{escape(model)} · {escape(condition)}",
                marker=_marker(find_position(str(model), models), filled=condition == conditions[0]),
                customdata=[[escape(d), escape(model), escape(condition)] for d in part["dataset"]],
                hovertemplate="<b>%{customdata[0]}</b><br>%{customdata[1]} · %{customdata[2]}"
                f"<br>{AXES[CORRECTED]} %{{x:.3g}}<br>NMSE %{{y:.3g}}<extra></extra>",
            )
        )
    figure.update_xaxes(**_decades(rows["isotropy"]), title_text=ISOTROPY_TITLES[CORRECTED])
    figure.update_yaxes(**_decades(rows["nmse"]), title_text=ERROR_TITLE)
    return apply_style(figure)


def draw_training(frame: pd.DataFrame, models: Sequence[str] = ()) -> go.Figure:
    """Draw the training loss by step, one line per model, each divided by its first value.

    The losses of different families have different units. models: the models of the whole page, which
    determine the colours; training recipes with other names come after them.
    """
    import plotly.graph_objects as go

    figure = go.Figure()
    order = [*models, *(name for name in distinct_values(frame, "model") if name not in models)]
    for position, model in enumerate(order):
        if model not in set(frame["model"]):
            continue
        part = frame[frame["model"] == model].sort_values("step")
        loss = part["loss"].to_numpy(dtype=float)
        figure.add_trace(
            go.Scatter(
                x=part["step"].to_numpy(),
                y=loss / loss[0],
                mode="lines",
                name=escape(model),
                line={"color": COLOURS[position % len(COLOURS)], "dash": DASHES[position % len(DASHES)], "width": 2},
                customdata=[[escape(model), value] for value in loss],
                hovertemplate="%{customdata[0]}<br>step %{x}<br>loss %{customdata[1]:.4g}<extra></extra>",
            )
        )
    figure.update_xaxes(title_text="step", rangemode="tozero")
    figure.update_yaxes(title_text="loss / first logged loss", type="log")
    return apply_style(figure)


def select_drawable(frame: pd.DataFrame, measure: str = CORRECTED) -> pd.DataFrame:
    """Return the rows that log axes can show, with a column `isotropy`: the absolute value of the measure."""
    rows = frame.assign(isotropy=frame[measure].astype(float).abs(), nmse=frame["nmse"].astype(float))
    both = rows[["isotropy", "nmse"]].to_numpy()
    shown: pd.DataFrame = rows[(np.isfinite(both) & (both > 0)).all(axis=1)]
    return shown


def describe_undrawable(rows: int, drawable: int) -> str:
    """Return a sentence on rows that log axes cannot show, with a space before it; empty if there are none."""
    if rows == drawable:
        return ""
    verb = "is" if rows - drawable == 1 else "are"
    return (
        f" {rows - drawable} of {rows} points {verb} not positive and cannot be drawn on a log axis;"
        " the CSV contains them."
    )


def _links(rows: pd.DataFrame) -> tuple[list[Any], list[Any]]:
    """Return x and y of lines that join the models of one data set and condition, separated by None."""
    x: list[Any] = []
    y: list[Any] = []
    for _, part in rows.sort_values("model").groupby(["dataset", "condition"], sort=True):
        if len(part) > 1:
            x += [*part["isotropy"].tolist(), None]
            y += [*part["nmse"].tolist(), None]
    return x, y


def _marker(position: int, *, filled: bool) -> dict[str, Any]:
    colour, symbol = COLOURS[position % len(COLOURS)], SYMBOLS[position % len(SYMBOLS)]
    return {
        "color": colour,
        "symbol": symbol if filled else f"{symbol}-open",
        "size": 10,
        "line": {"width": 1.5, "color": colour},
    }


def shorten_name(name: str, longest: int, tail: int) -> str:
    """Return a name of at most `longest` characters; a longer one has an ellipsis before its last `tail` ones."""
    return name if len(name) <= longest else f"{name[: longest - 1 - tail]}…{name[-tail:]}"


def choose_colour(model: str, models: Sequence[str]) -> str:
    """Return the colour of a model. models: the models of the whole page; another model comes after them."""
    return COLOURS[find_position(model, models) % len(COLOURS)]


def find_position(model: str, models: Sequence[str]) -> int:
    """Return the position of a model among those of the whole page; another model comes after them."""
    return models.index(model) if model in models else len(models)


def distinct_values(frame: pd.DataFrame, column: str) -> list[Any]:
    """Return the distinct values of a column, sorted, without missing ones."""
    return sorted(frame[column].dropna().unique().tolist())


def _decades(values: pd.Series) -> dict[str, Any]:
    """Return a log axis labelled by powers of ten; with two decades or fewer, Plotly chooses the labels."""
    wide = len(values) > 0 and float(values.max()) > 100 * float(values.min())
    return {"type": "log", "exponentformat": "power", **({"dtick": 1} if wide else {})}


def apply_style(figure: go.Figure) -> go.Figure:
    """Apply the style that all figures share; the page sets the colours of text and grid."""
    return figure.update_layout(
        template="none",
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        margin={"l": 64, "r": 16, "t": 12, "b": 56},
        legend={
            "orientation": "h",
            "x": 0,
            "xanchor": "left",
            "y": 1.02,
            "yanchor": "bottom",
        },
        hoverlabel={"align": "left"},
        autosize=True,
    )

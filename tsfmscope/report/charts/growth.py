"""Figures of numerical ranks by layer and by model (Yu et al. 2026, Figs. 4, 5, 6 and 9)."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tsfmscope.report import colorscale
from tsfmscope.report.charts import grid
from tsfmscope.report.charts.figures import DASHES, apply_style, distinct_values, escape
from tsfmscope.report.charts.panels import make_dash_key
from tsfmscope.report.charts.spectra import MODALITIES

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

TOLERANCES = (1e-1, 1e-2, 1e-3)
FULL = "full rank"
# Fractions of the width, drawn as thin lines.
FRACTIONS = (1.0, 0.5, 0.25, 0.125)
# Quantities, in the order of their panels.
QUANTITIES = ("embedded tokens", "query projections", "their heads")
# Quantity -> title of its panel.
TITLES = {"their heads": "query projections, one head"}
# Word before the number in the names of a grid's models -> title of the axis.
VARIED = {
    "width": "model width",
    "heads": "number of heads",
    "vocabulary": "rank of the vocabulary",
    "patch": "patch length (time steps)",
}
FRACTION_NAMES = ("width", "½", "¼", "⅛")
# Matches the word and the number at the end of a model's name, and the seed of a training of a population.
NUMBERED = re.compile(r"-([a-z]+)-[0-9.]+(?:-[0-9]+)?$")
HOVER = "%{fullData.name}<br>%{x:g}: rank %{y:.3g}<extra></extra>"


def draw_growth(frame: pd.DataFrame, *, offset: int) -> go.Figure:
    """Draw the numerical rank by layer: one panel per model, one line per tolerance and stack.

    frame: columns of `plots.growth.COLUMNS`.
    offset: added to the layer. With 1, a layer input stands at the number of the layer that reads it, from 1.

    Time-series models come first. A band shows the range where n > 1. Hollow points: the tolerance is below
    the floor that rounding leaves.
    """
    import plotly.graph_objects as go

    models, dashes = order_panels(frame), _dashes(frame)
    figure = go.Figure([*_keys(frame), *(make_dash_key(name, dash) for name, dash in dashes.items())])
    for key, part in frame.groupby(["model", "stack", "epsilon"], sort=True):
        model, stack, epsilon = str(key[0]), str(key[1]), float(part["epsilon"].iloc[0])
        part = part.sort_values("layer")
        axes, x = grid.axis_names(models.index(model)), (part["layer"] + offset).tolist()
        single_stack = frame.loc[frame["model"] == model, "stack"].nunique() == 1
        figure.add_traces(_band(x, part, axes, epsilon))
        figure.add_trace(_line(x, part, epsilon, "solid" if single_stack else dashes[stack]).update(axes))
    for position, model in enumerate(models):
        part = frame[frame["model"] == model]
        ends = [int(part["layer"].min()) + offset, int(part["layer"].max()) + offset]
        figure.add_trace(_thin(ends, [float(part["full_rank"].max())] * 2).update(grid.axis_names(position)))
    deepest = int(frame["layer"].max()) + offset
    x_axis = grid.make_axis("layer", range=[0.6, deepest + 0.4], dtick=max(1, math.ceil(deepest / 6)), tick0=1)
    y_axis = grid.make_axis("numerical rank", range=[0, 1.06 * float(frame["full_rank"].max())], nticks=5)
    shape = grid.Shape(columns=min(4, max(2, len(models))), narrow=2, row=200 if len(models) < 4 else 150)
    return apply_style(figure).update_layout(**grid.lay_out(_titles(frame, models), x_axis, y_axis, shape))


def draw_trend(frame: pd.DataFrame) -> go.Figure:
    """Draw the mean numerical rank against the quantity that a grid of models varies.

    frame: columns of `plots.trend.COLUMNS`; rows with x ≤ 0 are left out. There is one panel per quantity and
    family, and one line per tolerance, through the means of models with the same x. The x axis is logarithmic,
    labelled at the values of x. Where the width is the varied quantity, thin lines show the width and its fractions.
    """
    import plotly.graph_objects as go

    frame = frame[frame["x"] > 0].assign(family=frame["family"].fillna(""))
    order = {name: position for position, name in enumerate(QUANTITIES)}
    pairs = set(zip(frame["quantity"], frame["family"], strict=True))
    cells = sorted(pairs, key=lambda pair: (order.get(pair[0], len(order)), pair[1]))
    figure = go.Figure(_keys(frame))
    for position, (quantity, family) in enumerate(cells):
        part, axes = frame[(frame["quantity"] == quantity) & (frame["family"] == family)], grid.axis_names(position)
        ends = part["x"].min(), part["x"].max()
        if (part["width"] == part["x"]).all():
            figure.add_traces([_thin(ends, [end * part_of for end in ends]).update(axes) for part_of in FRACTIONS])
            figure.add_trace(_fraction_names(float(ends[1])).update(axes))
        for epsilon in part["epsilon"].unique().tolist():
            line = part[part["epsilon"] == epsilon].sort_values("x")
            points = _line(line["x"].tolist(), line, epsilon, "solid")
            if line["x"].is_unique:
                figure.add_trace(points.update(axes))
                continue
            means = line.groupby("x", as_index=False).agg(
                {"rank": "mean", "model": "first", "below_noise_floor": "any"}
            )
            through = _line(means["x"].tolist(), means, epsilon, "solid")
            figure.add_trace(through.update(axes, mode="lines", name=f"mean, {_name(epsilon)}"))
            figure.add_trace(points.update(axes, mode="markers"))
    ticks = sorted(frame["x"].unique().tolist())
    span = math.log10(ticks[-1] / ticks[0])
    shown = [round(math.log10(ticks[0]) - 0.08, 3), round(math.log10(ticks[-1]) + max(0.08, 0.12 * span), 3)]
    labels = {"tickvals": ticks, "ticktext": [f"{tick:g}" for tick in ticks]}
    x_axis = grid.make_axis(f"{name_varied(frame['model'])} (log)", type="log", range=shown, **labels)
    y_axis = grid.make_axis("mean numerical rank", rangemode="tozero", nticks=6)
    shape = grid.Shape(columns=2 if len(cells) in (1, 2, 4) else 3, narrow=1, row=230, shared=False)
    titles = [f"{TITLES.get(quantity, quantity)}\n{family}" for quantity, family in cells]
    return apply_style(figure).update_layout(**grid.lay_out(titles, x_axis, y_axis, shape))


def name_varied(models: pd.Series) -> str:
    """Return the quantity that a grid varies, from names such as chronos-heads-8 of all its models."""
    words = {match[1] if (match := NUMBERED.search(str(model))) else "" for model in models}
    return VARIED.get(words.pop(), "varied quantity") if len(words) == 1 else "varied quantity"


def order_panels(frame: pd.DataFrame) -> list[str]:
    """Return the models in the order of their modality, time series first, then by name."""
    rows = frame.drop_duplicates("model").sort_values("model")
    order = [*MODALITIES, None]
    placed = rows.assign(position=[order.index(m if m in MODALITIES else None) for m in rows["modality"]])
    models: list[str] = placed.sort_values(["position", "model"])["model"].tolist()
    return models


def _dashes(frame: pd.DataFrame) -> dict[str, str]:
    """Return stack -> dash for stacks that share a panel with another, encoders first."""
    several = frame.groupby("model")["stack"].transform("nunique") > 1
    return {name: DASHES[position % len(DASHES)] for position, name in enumerate(order_stacks(frame[several]))}


def order_stacks(rows: pd.DataFrame) -> list[str]:
    """Return the stacks, encoders first."""
    return sorted(distinct_values(rows, "stack"), key=lambda name: ("encoder" not in name, name))


def _titles(frame: pd.DataFrame, models: Sequence[str]) -> list[str]:
    """Return the models' names, each with its modality on a second line unless all are time-series models."""
    modalities = dict(zip(frame["model"], frame["modality"], strict=True))
    if set(modalities.values()) <= {"series"}:
        return list(models)
    return [f"{model}\n{modalities[model] or 'unknown'}" for model in models]


def _keys(frame: pd.DataFrame) -> list[go.Scatter]:
    import plotly.graph_objects as go

    known = [epsilon for epsilon in TOLERANCES if epsilon in set(frame["epsilon"])]
    return [
        go.Scatter(x=[None], y=[None], mode="lines", name=_name(epsilon), line={"width": 2, "color": _colour(epsilon)})
        for epsilon in known
    ]


def _line(x: Sequence[float], part: pd.DataFrame, epsilon: float, dash: str) -> go.Scatter:
    import plotly.graph_objects as go

    colour = _colour(epsilon)
    symbols = ["circle-open" if hollow else "circle" for hollow in part["below_noise_floor"]]
    return go.Scatter(
        x=x,
        y=part["rank"].tolist(),
        mode="lines+markers",
        name=f"{escape(part['model'].iloc[0])}, {_name(epsilon)}",
        showlegend=False,
        line={"width": 1.8, "color": colour, "dash": dash},
        marker={"size": 6, "color": colour, "symbol": symbols, "line": {"width": 1.5, "color": colour}},
        hovertemplate=HOVER,
    )


def _band(x: Sequence[float], part: pd.DataFrame, axes: Mapping[str, Any], epsilon: float) -> list[go.Scatter]:
    """Draw the area from the smallest to the largest rank; empty without several values and layers."""
    import plotly.graph_objects as go

    if int(part["n"].max()) < 2 or len(x) < 2:
        return []
    y = [*part["high"].tolist(), *part["low"].tolist()[::-1]]
    area = {"fill": "toself", "fillcolor": colorscale.set_opacity(_colour(epsilon), 0.16), "line": {"width": 0}}
    return [
        go.Scatter(x=[*x, *x[::-1]], y=y, mode="none", showlegend=False, hoverinfo="skip", **area).update(dict(axes))
    ]


def _thin(x: Sequence[float], y: Sequence[float]) -> go.Scatter:
    import plotly.graph_objects as go

    line = {"width": 1, "dash": "dot", "color": colorscale.GREY}
    return go.Scatter(x=list(x), y=list(y), mode="lines", name=FULL, showlegend=False, hoverinfo="skip", line=line)


def _fraction_names(end: float) -> go.Scatter:
    """Write the fractions of the width at the ends of their lines."""
    import plotly.graph_objects as go

    return go.Scatter(
        x=[end] * len(FRACTIONS), y=[end * part_of for part_of in FRACTIONS], mode="text", text=list(FRACTION_NAMES),
        textposition="middle right", textfont={"size": 10, "color": colorscale.GREY}, showlegend=False,
        hoverinfo="skip", cliponaxis=False,
    )  # fmt: skip


def _name(epsilon: float) -> str:
    return f"tolerance {colorscale.format_power(math.log10(epsilon))}"


def _colour(epsilon: float) -> str:
    return colorscale.interpolate_colour(TOLERANCES.index(epsilon), len(TOLERANCES))

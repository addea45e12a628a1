"""Heat maps of angles and plots of tokens on a plane.

Source: Yu et al. 2026, Figs. 2b, 2c, 3b, 9 and 12 to 14.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tsfmscope.tasks.report import colorscale
from tsfmscope.tasks.report.charts import grid
from tsfmscope.tasks.report.charts.figures import apply_style

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

# A right angle in degrees.
RIGHT = 90
PANEL = ["model", "dataset", "condition", "what", "matrix", "stack", "layer"]
SQUARES = grid.Shape(columns=4, narrow=2, row=190, shared=False)
PLANES = grid.Shape(columns=4, narrow=2, row=150, shared=False)
SCALE = {
    "cmin": 0,
    "cmax": RIGHT,
    "colorscale": [list(pair) for pair in colorscale.HEAT],
    "colorbar": {
        "tickvals": [0, 45, 90], "ticktext": ["0", "π/4", "π/2"], "thickness": 12, "len": 190, "lenmode": "pixels",
        "y": 1, "yanchor": "top", "x": 1.01, "outlinewidth": 0, "tickfont": {"size": 10},
    },
}  # fmt: skip


def angles(frame: pd.DataFrame) -> go.Figure:
    """Draw the angles between all pairs of vectors, in degrees from 0 to 90; one panel per set of vectors.

    frame: columns of `plots.angles.COLUMNS`. Brighter is larger. Lines separate the heads of a projection's
    rows.
    """
    import plotly.graph_objects as go

    figure, titles, rows = go.Figure(), [], []
    for place, part in enumerate(panels(frame)):
        where, field = grid.axes(place), matrix(part)
        titles.append(title(part))
        rows.append(len(field))
        hover = "%{x}, %{y}: %{z}°<extra></extra>"
        figure.add_trace(go.Heatmap(z=field, coloraxis="coloraxis", hovertemplate=hover, **where))
        if borders := _borders(part, len(field)):
            figure.add_trace(borders.update(where))
    laid = grid.layout(titles, grid.bare(), grid.bare(), SQUARES)
    for place, count in enumerate(rows):
        laid = grid.changed(laid, _square(place, count))
    return apply_style(figure).update_layout(**grid.tight(laid, right=64), coloraxis=SCALE)


def panels(frame: pd.DataFrame) -> list[pd.DataFrame]:
    """Return the rows of each set of vectors.

    Models are in the order of x, the quantity that a grid of models varies; Gaussian vectors come last.
    """
    placed = frame.assign(gaussian=frame["what"] == "gaussian", head=frame["head"].astype("Float64"))
    order = placed.sort_values(["gaussian", "x", "model", "dataset", "row"], kind="stable")
    return [part.sort_values("row") for _, part in order.groupby(PANEL, sort=False, dropna=False)]


def matrix(part: pd.DataFrame) -> np.ndarray:
    """Return the [n, n] angles of one set in whole degrees, uint8; missing ones are 255, above the scale."""
    rows = [[int(one) if one else 255 for one in text.split(" ")] for text in part["degrees"]]
    return np.array(rows, dtype=np.uint8)


def planes(frame: pd.DataFrame) -> go.Figure:
    """Draw embedded tokens on two singular directions: one panel per model, data set and condition.

    frame: columns of `plots.plane.COLUMNS`. Colours follow the order of the tokens' values; without values
    that of their ids; without ids all tokens have one colour.
    """
    import plotly.graph_objects as go

    figure, titles = go.Figure(), []
    several = frame.groupby("model")["dataset"].nunique().max() > 1
    cells = frame.sort_values(["x_axis", "model", "dataset", "token"], kind="stable")
    for place, ((model, dataset, _), part) in enumerate(
        cells.groupby(["model", "dataset", "condition"], sort=False, dropna=False)
    ):
        titles.append(f"{model}\n{dataset}" if several else str(model))
        figure.add_trace(
            go.Scatter(
                x=part["x"].to_numpy(np.float32),
                y=part["y"].to_numpy(np.float32),
                mode="markers",
                showlegend=False,
                marker={"size": 3, "cmin": 0, "cmax": 1, "colorscale": [list(pair) for pair in colorscale.ORDER]}
                | {"color": ordered(part)},
                customdata=part["value"].fillna(part["type"].astype("Float64")).to_numpy(np.float32),
                hovertemplate="%{customdata:.4g}<extra></extra>",
                **grid.axes(place),
            )
        )
    laid = grid.layout(titles, grid.bare(zeroline=False), grid.bare(zeroline=False), PLANES)
    return apply_style(figure).update_layout(**grid.tight(laid))


def ordered(part: pd.DataFrame) -> np.ndarray:
    """Return the dense ranks of the tokens by value, else by id, scaled to [0, 1]: [n], float32.

    Tokens without the chosen value or id get 0. Without any value or id, all tokens get 0.25.
    """
    for name in ("value", "type"):
        if part[name].notna().any():
            place = part[name].astype("Float64").rank(method="dense")
            span = float(place.max()) - 1
            return ((place - 1) / span if span else place * 0).fillna(0).to_numpy(np.float32)
    return np.full(len(part), 0.25, np.float32)


def title(part: pd.DataFrame) -> str:
    """Return a title of two lines for a set of vectors."""
    head = part.iloc[0]
    if head["what"] == "gaussian":
        return f"Gaussian\nin {int(head['dimension'])} dimensions"
    if head["what"] == "rows":
        heads = part["head"].nunique()
        return f"{head['model']}\n{heads} head{'' if heads == 1 else 's'}"
    return f"{head['model']}\n{head['dataset']}"


def _borders(part: pd.DataFrame, count: int) -> go.Scatter | None:
    """Draw lines between the rows of different heads; None if there is nothing to separate."""
    import plotly.graph_objects as go

    heads = part["head"].dropna().tolist()
    edges = [at - 0.5 for at in range(1, len(heads)) if heads[at] != heads[at - 1]] if len(heads) == count else []
    if not edges:
        return None
    ends, x, y = [-0.5, count - 0.5], [], []
    for edge in edges:
        x += [*ends, None, edge, edge, None]
        y += [edge, edge, None, *ends, None]
    line = {"width": 0.8, "color": "rgba(255,255,255,0.75)"}
    return go.Scatter(x=x, y=y, mode="lines", line=line, showlegend=False, hoverinfo="skip")


def _square(place: int, count: int) -> dict[str, Any]:
    """Return axis settings of a square panel that shows all elements, with the first row at the top."""
    names = grid.axes(place)
    x = {"range": [-0.5, count - 0.5], "constrain": "domain"}
    y = {"range": [count - 0.5, -0.5], "scaleanchor": names["xaxis"], "constrain": "domain", "constraintoward": "top"}
    return {
        names["xaxis"].replace("x", "xaxis"): x | {"constraintoward": "left"},
        names["yaxis"].replace("y", "yaxis"): y,
    }

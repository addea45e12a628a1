"""Heat maps of angles and plots of tokens on a plane.

Source: Yu et al. 2026, Figs. 2b, 2c, 3b, 9 and 12 to 14.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tsfmscope.report import colorscale
from tsfmscope.report.charts import grid
from tsfmscope.report.charts.figures import apply_style

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

# A right angle in degrees.
RIGHT = 90
PANEL = ["model", "dataset", "condition", "what", "matrix", "stack", "layer"]
# Margins in pixels left and right of the panels, the width of all panels in the PNG, and their largest side.
LEFT, BAR, WIDTH, SIDE = 54, 84, 722, 320
# Set of vectors -> title of both axes of its panel.
VECTORS = {"rows": "row of the projection, by head", "tokens": "token position", "gaussian": "vector"}
PLANES = grid.Shape(columns=4, narrow=2, row=150, shared=False)
SCALE: dict[str, Any] = {
    "cmin": 0,
    "cmax": RIGHT,
    "colorscale": [list(pair) for pair in colorscale.HEAT],
    "colorbar": {
        "tickvals": [0, 45, 90], "ticktext": ["0", "π/4", "π/2"], "thickness": 12, "lenmode": "pixels",
        "y": 1, "yanchor": "top", "x": 1.01, "outlinewidth": 0, "tickfont": {"size": 10},
        "title": {"text": "angle (radians)", "side": "right", "font": {"size": 12}},
    },
}  # fmt: skip


def draw_angles(frame: pd.DataFrame) -> go.Figure:
    """Draw the angles between all pairs of vectors, in degrees from 0 to 90; one panel per set of vectors.

    frame: columns of `plots.angles.COLUMNS`. Brighter is larger. Lines separate the heads of a projection's
    rows, which have one label per head.
    """
    import plotly.graph_objects as go

    figure, titles, parts = go.Figure(), [], split_panels(frame)
    for position, part in enumerate(parts):
        where, field = grid.axis_names(position), read_matrix(part)
        titles.append(make_title(part))
        hover = "%{x}, %{y}: %{z}°<extra></extra>"
        figure.add_trace(go.Heatmap(z=field, coloraxis="coloraxis", hovertemplate=hover, **where))
        if borders := _borders(part, len(field)):
            figure.add_trace(borders.update(where))
    columns = _columns(len(parts))
    side = min(SIDE, round(WIDTH * (1 - grid.BETWEEN * (columns - 1)) / columns))
    axis = grid.make_axis("vector", showgrid=False)
    shape = grid.Shape(columns=columns, narrow=min(2, columns), row=side, shared=False)
    layout = grid.remove_legend(grid.lay_out(titles, axis, axis, shape), left=LEFT, right=BAR)
    for position, part in enumerate(parts):
        layout = grid.change_axes(layout, _square(position, part))
        layout = _name_axes(layout, position, VECTORS[part["what"].iloc[0]])
    scale = {**SCALE, "colorbar": {**SCALE["colorbar"], "len": side}}
    return apply_style(figure).update_layout(**layout, coloraxis=scale)


def split_panels(frame: pd.DataFrame) -> list[pd.DataFrame]:
    """Return the rows of each set of vectors.

    Models are in the order of x, the quantity that a grid of models varies; Gaussian vectors come last.
    """
    placed = frame.assign(gaussian=frame["what"] == "gaussian", head=frame["head"].astype("Float64"))
    order = placed.sort_values(["gaussian", "x", "model", "dataset", "row"], kind="stable")
    return [part.sort_values("row") for _, part in order.groupby(PANEL, sort=False, dropna=False)]


def read_matrix(part: pd.DataFrame) -> np.ndarray:
    """Return the [n, n] angles of one set in whole degrees, uint8; missing ones are 255, above the scale."""
    rows = [[int(degrees) if degrees else 255 for degrees in text.split(" ")] for text in part["degrees"]]
    return np.array(rows, dtype=np.uint8)


def draw_planes(frame: pd.DataFrame) -> go.Figure:
    """Draw embedded tokens on two singular directions: one panel per model, data set and condition.

    frame: columns of `plots.plane.COLUMNS`. Colours follow the order of the tokens' values; without values
    that of their ids; without ids all tokens have one colour.
    """
    import plotly.graph_objects as go

    figure, titles = go.Figure(), []
    several = frame.groupby("model")["dataset"].nunique().max() > 1
    cells = frame.sort_values(["x_axis", "model", "dataset", "token"], kind="stable")
    for position, ((model, dataset, _), part) in enumerate(
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
                | {"color": rank_tokens(part)},
                customdata=part["value"].fillna(part["type"].astype("Float64")).to_numpy(np.float32),
                hovertemplate="%{customdata:.4g}<extra></extra>",
                **grid.axis_names(position),
            )
        )
    x, y = (
        grid.make_axis(f"{order} singular direction", showgrid=False, ticks="", zeroline=False)
        for order in ("1st", "2nd")
    )
    layout = grid.lay_out(titles, x, y, PLANES)
    return apply_style(figure).update_layout(**grid.remove_legend(layout, foot=40, left=40))


def rank_tokens(part: pd.DataFrame) -> np.ndarray:
    """Return the dense ranks of the tokens by value, else by id, scaled to [0, 1]: [n], float32.

    Tokens without the chosen value or id get 0. Without any value or id, all tokens get 0.25.
    """
    for name in ("value", "type"):
        if part[name].notna().any():
            position = part[name].astype("Float64").rank(method="dense")
            span = float(position.max()) - 1
            return ((position - 1) / span if span else position * 0).fillna(0).to_numpy(np.float32)
    return np.full(len(part), 0.25, np.float32)


def make_title(part: pd.DataFrame) -> str:
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

    heads = part["head"].dropna().tolist()
    edges = [at - 0.5 for at in range(1, len(heads)) if heads[at] != heads[at - 1]] if len(heads) == count else []
    if not edges:
        return None
    ends, x, y = [-0.5, count - 0.5], [], []
    for edge in edges:
        x += [*ends, None, edge, edge, None]
        y += [edge, edge, None, *ends, None]
    return grid.draw_guide(x, y, width=0.8, color="rgba(255,255,255,0.75)")


def _columns(count: int) -> int:
    """Return the panels per row: 4 or 3 if that fills all rows, else at most 4."""
    return next((columns for columns in (4, 3) if count % columns == 0), min(count, 4))


def _square(position: int, part: pd.DataFrame) -> dict[str, Any]:
    """Return axis settings of a square panel that shows all elements, with the first row at the top."""
    names, count = grid.axis_names(position), len(part)
    x = {"range": [-0.5, count - 0.5], "constrain": "domain", "constraintoward": "left", **_head_ticks(part)}
    y = {"range": [count - 0.5, -0.5], "scaleanchor": names["xaxis"], "constrain": "domain", **_head_ticks(part)}
    return {
        names["xaxis"].replace("x", "xaxis"): x,
        names["yaxis"].replace("y", "yaxis"): y | {"constraintoward": "top"},
    }


def _head_ticks(part: pd.DataFrame) -> dict[str, Any]:
    """Return one tick in the middle of every head, numbered from 1; empty if the vectors have no heads."""
    heads = part["head"].dropna().tolist()
    if len(heads) != len(part) or not heads:
        return {"nticks": 5}
    numbers = sorted(set(heads))
    places = [float(np.mean([at for at, head in enumerate(heads) if head == number])) for number in numbers]
    return {"tickvals": places, "ticktext": [str(int(number) + 1) for number in numbers]}


def _name_axes(layout: dict[str, Any], position: int, text: str) -> dict[str, Any]:
    """Replace the axis titles of a panel where it has some, for both widths."""
    names = grid.axis_names(position)
    keys = [names["xaxis"].replace("x", "xaxis"), names["yaxis"].replace("y", "yaxis")]
    out, narrow = (
        {
            **page,
            **{
                key: {**page[key], "title": {**page[key]["title"], "text": text if page[key]["title"]["text"] else ""}}
                for key in keys
            },
        }
        for page in (layout, layout["meta"]["narrow"])
    )
    return {**out, "meta": {"narrow": narrow}}

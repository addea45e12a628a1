"""Heat maps of the numerical rank relative to the width: one row per model and stack, one column per layer."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from tsfmscope.report import colorscale
from tsfmscope.report.charts import grid
from tsfmscope.report.charts.figures import apply_style, escape
from tsfmscope.report.charts.spectra import MODALITIES

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

# Tolerances of the panels. At 10⁻³ nearly all ranks are full.
TOLERANCES = (1e-1, 1e-2)
# Largest number of layers whose values are written into the elements.
WRITTEN = 12
# Pixels of a row, of a character of a row's name, of the colour bar.
ROW, CHARACTER, BAR = 18, 6.6, 76
# Marks values whose tolerance is below the rounding error.
NOISE = "*"


def draw_rank_maps(frame: pd.DataFrame, *, offset: int) -> go.Figure:
    """Draw rank ÷ width as heat maps with their values, one panel per tolerance, time-series models first.

    frame, offset: as in `growth.draw_growth`. Thin lines separate modalities. An asterisk marks a tolerance
    below the rounding error.
    """
    import plotly.graph_objects as go

    rows, figure = order_rows(frame), go.Figure()
    layers = list(range(int(frame["layer"].min()), int(frame["layer"].max()) + 1))
    shown = [epsilon for epsilon in TOLERANCES if epsilon in set(frame["epsilon"])]
    for position, epsilon in enumerate(shown):
        where, part = grid.axis_names(position), frame[frame["epsilon"] == epsilon]
        figure.add_trace(_map(part, rows, layers, offset).update(where))
        figure.add_trace(_separators(rows, len(layers)).update(where))
    titles = [f"tolerance {colorscale.format_power(math.log10(epsilon))}" for epsilon in shown]
    every = max(1, math.ceil(len(layers) / WRITTEN))
    ticks = list(range(0, len(layers), every))
    x = grid.make_axis(
        "layer", range=[-0.5, len(layers) - 0.5], tickvals=ticks,
        ticktext=[str(layers[at] + offset) for at in ticks], showgrid=False,
    )  # fmt: skip
    names = [escape(name_row(*row)) for row in rows]
    y = grid.make_axis(
        "", range=[len(rows) - 0.5, -0.5], tickvals=list(range(len(rows))), ticktext=names, showgrid=False
    )
    tall = ROW * len(rows)
    shape = grid.Shape(columns=len(shown), narrow=1, row=tall)
    left = round(20 + CHARACTER * max(map(len, names)))
    layout = grid.remove_legend(grid.lay_out(titles, x, y, shape), left=left, right=BAR)
    return apply_style(figure).update_layout(**layout, coloraxis=_scale(tall))


def order_rows(frame: pd.DataFrame) -> list[tuple[str, str, str]]:
    """Return (model, stack, modality) of every row: by modality, time series first, then by model, encoders first.

    The stack is empty where a model has only one.
    """
    order = {name: position for position, name in enumerate(MODALITIES)}
    found = frame.drop_duplicates(["model", "stack"])[["model", "stack", "modality"]]
    single = found.groupby("model")["stack"].transform("nunique") == 1
    rows = [
        (str(model), "" if is_single else str(stack), str(modality or "unknown"))
        for model, stack, modality, is_single in zip(
            found["model"], found["stack"], found["modality"], single, strict=True
        )
    ]
    return sorted(rows, key=lambda row: (order.get(row[2], len(order)), row[0], "encoder" not in row[1], row[1]))


def name_row(model: str, stack: str, modality: str) -> str:
    """Return the text of a row; the modality is named unless it is time series."""
    text = f"{model} {stack}".rstrip()
    return text if modality == "series" else f"{text} ({modality})"


def _map(part: pd.DataFrame, rows: list[tuple[str, str, str]], layers: list[int], offset: int) -> go.Heatmap:
    import plotly.graph_objects as go

    index = {row[:2]: position for position, row in enumerate(rows)}
    z = np.full((len(rows), len(layers)), np.nan)
    text = [[""] * len(layers) for _ in rows]
    hover = [[""] * len(layers) for _ in rows]
    for row in part.to_dict("records"):
        at = index.get((row["model"], row["stack"]), index.get((row["model"], "")))
        assert at is not None
        layer, share = layers.index(int(row["layer"])), float(row["rank"]) / float(row["full_rank"])
        z[at, layer] = round(share, 4)
        text[at][layer] = f"{share:.2f}{NOISE if row['below_noise_floor'] else ''}"
        hover[at][layer] = _describe(row, offset)
    return go.Heatmap(
        z=z,
        text=text,
        texttemplate="%{text}" if len(layers) <= WRITTEN else None,
        textfont={"size": 10},
        customdata=hover,
        coloraxis="coloraxis",
        hoverongaps=False,
        xgap=1,
        ygap=1,
        hovertemplate="%{customdata}<extra></extra>",
    )


def _describe(row: dict[Any, Any], offset: int) -> str:
    text = f"{row['model']}, {row['stack']}, layer {int(row['layer']) + offset}: rank {row['rank']:g}"
    span = f" ({row['low']:g} to {row['high']:g}, n = {int(row['n'])})" if int(row["n"]) > 1 else ""
    return escape(f"{text}{span} of {int(row['full_rank'])}")


def _separators(rows: list[tuple[str, str, str]], columns: int) -> go.Scatter:
    """Draw lines between the rows of different modalities."""

    x: list[float | None] = []
    y: list[float | None] = []
    for position in range(1, len(rows)):
        if rows[position][2] != rows[position - 1][2]:
            x += [-0.5, columns - 0.5, None]
            y += [position - 0.5, position - 0.5, None]
    return grid.draw_guide(x, y, width=1.4)


def _scale(tall: int) -> dict[str, Any]:
    return {
        "cmin": 0,
        "cmax": 1,
        "colorscale": [list(pair) for pair in colorscale.HEAT],
        "colorbar": {
            "tickvals": [0, 0.25, 0.5, 0.75, 1], "ticktext": ["0", "0.25", "0.5", "0.75", "1"], "thickness": 12,
            "len": min(tall, 260), "lenmode": "pixels", "y": 1, "yanchor": "top", "x": 1.01, "outlinewidth": 0,
            "tickfont": {"size": 10},
            "title": {"text": "numerical rank ÷ width", "side": "right", "font": {"size": 12}},
        },
    }  # fmt: skip

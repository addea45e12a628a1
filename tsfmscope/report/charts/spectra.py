"""Figures of singular values against their index, as in Yu et al. 2026, Figs. 2a, 3a, 5c and 13."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tsfmscope.report import colorscale
from tsfmscope.report.charts import grid
from tsfmscope.report.charts.figures import COLOURS, DASHES, apply_style, escape
from tsfmscope.report.charts.labels import NEAR, Frame, Label, draw_labels, measure_text, sample_line

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

# Modalities, in the order that assigns dashes.
MODALITIES = ("series", "text", "image", "table")
RATIO, NUMBER = "singular value ÷ largest", "index of the singular value, largest first"
HOVER = "%{fullData.name}<br>index %{x}: %{y:.3g}<extra></extra>"
# Size in pixels of one panel in the PNG, for the labels at line ends.
WIDTH, HEIGHT = 780, 330
SPECIAL = {"with_special": "with special tokens", "valued": "value tokens only"}


def draw_spectrum(frame: pd.DataFrame, models: Sequence[str]) -> go.Figure:
    """Draw the relative singular values of the embedded tokens, each line labelled at its end.

    There is one line per model, data set and condition.

    frame: columns of `plots.spectrum.COLUMNS`, without values below the floor that rounding leaves.
    models: the models of the whole page, which determine the colours where all have one modality; models of
    several modalities have one colour and dash per modality, and a grid of models is coloured by its order.

    There is one panel per data set where a model has several under one condition; else, and where modalities
    are compared, one panel for all.
    """
    import plotly.graph_objects as go

    panels, colours = list_dataset_panels(frame), choose_colours(frame, models)
    shown = [name for name in MODALITIES if name in set(frame["modality"])]
    figure, labels = go.Figure(), dict[int, list[Label]]()
    keys = ["x", "model", "dataset", "condition"]
    for key, part in frame.groupby(keys, sort=True, dropna=False):
        model, dataset, modality = str(key[1]), str(key[2]), part["modality"].iloc[0]
        dash = DASHES[shown.index(modality) if modality in shown else 0]
        panel = panels.index(dataset) if panels else 0
        line = _line(part, escape(model), colours[model], dash, first=False)
        figure.add_trace(line.update(grid.axis_names(panel)))
        end = part.sort_values("j").iloc[-1]
        text = escape(_name_line(frame, key, panels))
        labels.setdefault(panel, []).append(Label(text, float(end["j"]), float(end["ratio"]), colours[model]))
    if len(shown) > 1:
        is_grid = frame["x"].notna().all()
        figure.add_traces(
            [_key(name, at, colorscale.GREY if is_grid else COLOURS[at]) for at, name in enumerate(shown)]
        )
    columns = min(2, max(1, len(panels)))
    room = max(measure_text(label.text) for parts in labels.values() for label in parts) + 2 * NEAR
    shape = grid.Shape(columns=columns, narrow=1, row=HEIGHT if len(panels) < 2 else 220)
    figure = _lay_out(figure, frame, panels, shape, room=room / (WIDTH / columns - room))
    for panel, parts in labels.items():
        _label_lines(figure, panel, parts, (WIDTH / columns, shape.row))
    return figure


def _name_line(frame: pd.DataFrame, key: Any, panels: Sequence[str]) -> str:
    """Return the label of a line: the model, and what else tells it from the model's other lines."""
    _, model, dataset, condition = key
    rows = frame[frame["model"] == model]
    named = [(dataset, not panels and rows["dataset"].nunique() > 1), (condition, rows["condition"].nunique() > 1)]
    return ", ".join([str(model), *(str(value) for value, is_needed in named if is_needed)])


def _key(name: str, position: int, colour: str) -> go.Scatter:
    import plotly.graph_objects as go

    line = {"color": colour, "dash": DASHES[position], "width": 2}
    return go.Scatter(x=[None], y=[None], mode="lines", name=name, line=line)


def _label_lines(figure: go.Figure, panel: int, labels: Sequence[Label], size: tuple[float, float]) -> None:
    names = grid.axis_names(panel)
    axes = [figure.layout[f"{name[0]}axis{name[1:]}"] for name in (names["xaxis"], names["yaxis"])]
    frame = Frame(tuple(axes[0].range), tuple(axes[1].range), *size, log_y=True)
    lines = [trace for trace in figure.data if (trace.xaxis or "x") == names["xaxis"] and len(trace.x) > 1]
    obstacles = np.concatenate([sample_line(line.x, line.y, frame) for line in lines])
    figure.add_traces([trace.update(names) for trace in draw_labels(labels, obstacles, frame)])


def draw_constant(frame: pd.DataFrame) -> go.Figure:
    """Draw the relative singular values of every layer's input for a constant series: one line per layer.

    frame: columns of `plots.constant.COLUMNS`. There is one panel per model, stack and kind of tokens; the
    legend numbers layers from 1.
    """
    import plotly.graph_objects as go

    cells = sorted(set(zip(frame["model"], frame["stack"], frame["tokens"], strict=True)), key=_special_first)
    layers = sorted(int(layer) for layer in frame["layer"].unique())
    figure, seen = go.Figure(), set[int]()
    for key, part in frame.groupby(["layer", "model", "stack", "tokens"], sort=True):
        layer, cell = int(part["layer"].iloc[0]), (str(key[1]), str(key[2]), str(key[3]))
        name, colour = f"input of layer {layer + 1}", colorscale.interpolate_colour(layers.index(layer), len(layers))
        axes = grid.axis_names(cells.index(cell))
        line = _line(part, name, colour, "solid", first=layer not in seen)
        seen.add(layer)
        figure.add_trace(line.update(mode="lines+markers", marker={"size": 5, "color": colour}, **axes))
    titles = [f"{model}\n{stack}, {SPECIAL.get(tokens, tokens)}" for model, stack, tokens in cells]
    return _lay_out(figure, frame, titles, grid.Shape(columns=2, narrow=1, row=210))


def list_dataset_panels(frame: pd.DataFrame) -> list[str]:
    """Return the data sets that get a panel each; empty if one panel holds all.

    Panels are separate if a model has several data sets under one condition and there is at most one
    modality.
    """
    if frame["modality"].nunique() > 1:
        return []
    several = frame.groupby(["model", "condition"])["dataset"].nunique().max() if len(frame) else 0
    return sorted(frame["dataset"].unique()) if several > 1 else []


def choose_colours(frame: pd.DataFrame, models: Sequence[str]) -> dict[str, str]:
    """Return model -> colour: by x in a grid, by modality if several, else the page's colours."""
    order = frame.drop_duplicates("model").sort_values(["x", "model"])
    if len(order) and order["x"].notna().all():
        return {
            name: colorscale.interpolate_colour(position, len(order)) for position, name in enumerate(order["model"])
        }
    shown = [name for name in MODALITIES if name in set(order["modality"])]
    if len(shown) > 1:
        return {
            model: COLOURS[shown.index(modality)] if modality in shown else colorscale.GREY
            for model, modality in zip(order["model"], order["modality"], strict=True)
        }
    known = [*models, *(name for name in order["model"] if name not in models)]
    return {name: COLOURS[known.index(name) % len(COLOURS)] for name in order["model"]}


def _line(part: pd.DataFrame, name: str, colour: str, dash: str, *, first: bool) -> go.Scatter:
    import plotly.graph_objects as go

    part = part.sort_values("j")
    return go.Scatter(
        x=part["j"].to_numpy(np.int32),
        y=part["ratio"].to_numpy(np.float32),
        mode="lines",
        name=name,
        legendgroup=name,
        showlegend=first,
        line={"color": colour, "dash": dash, "width": 2},
        hovertemplate=HOVER,
    )


def _lay_out(
    figure: go.Figure, frame: pd.DataFrame, titles: Sequence[str], shape: Any = None, *, room: float = 0.03
) -> go.Figure:
    """Lay out panels with logarithmic y axes from the smallest value shown to 1.

    room: space right of the last index, as a share of it.
    """
    low = math.log10(float(frame["ratio"].min())) if len(frame) else -1.0
    step = max(1, math.ceil(-low / 5))
    y = grid.make_axis(
        RATIO, type="log", exponentformat="power", range=[round(min(low - 0.15, -0.5), 3), 0.15], dtick=step
    )
    last = float(frame["j"].max()) if len(frame) else 1.0
    x = grid.make_axis(NUMBER, range=[0, round((1 + room) * last + 0.5, 2)])
    layout = grid.lay_out(titles or [""], x, y, shape or grid.Shape(row=280 if len(titles) < 2 else 220, narrow=1))
    if not titles:
        layout["annotations"] = []
    return apply_style(figure).update_layout(**layout)


def _special_first(cell: tuple[str, str, str]) -> tuple[str, str, bool]:
    return cell[0], cell[1], cell[2] != "with_special"

"""Effective dimension by layer, and by compression."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from tsfmscope.report.charts import grid
from tsfmscope.report.charts.figures import apply_style, choose_colour, escape

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

TITLE = "effective dimension d(0.8)"
LAYERS = "layer (′: normed)"
# Name of the model without compression on the axis.
DENSE = "dense"
# Largest number of labels below a panel.
TICKS = 13
# Free positions between the layers of two stacks.
APART = 2
# Space right of the last compressed model for the names of the layers, in positions.
NAMES = 1.6


class _Place(NamedTuple):
    """A layer of a model on the horizontal axis."""

    x: int
    stack: str
    layer: int
    normed: bool

    @property
    def name(self) -> str:
        return name_layer(self.layer, self.normed)


def draw_by_layer(frame: pd.DataFrame, models: Sequence[str]) -> go.Figure:
    """Draw one panel per model: the median of each layer as a point, and the range as a whisker.

    frame: model, stack, layer, normed, median, low, high, n.
    models: the models of the whole page, which determine the colours.

    Layers stand in the order of computation: those of the encoder, then those of the decoder. A line joins the
    layers of a stack.
    """
    import plotly.graph_objects as go

    names = sorted(frame["model"].unique().tolist())
    top = _top(frame["high"])
    figure, axes = go.Figure(), {}
    for panel, model in enumerate(names):
        rows = frame[frame["model"] == model]
        places = _place_layers(rows)
        for stack, group in itertools.groupby(places, key=lambda state: state.stack):
            part = list(group)
            traces = [_stack(rows, part, model, choose_colour(model, models)), _stack_name(part, stack, top)]
            figure.add_traces([trace.update(grid.axis_names(panel)) for trace in traces])
        axes[grid.axis_names(panel)["xaxis"].replace("x", "xaxis")] = _ticks(places)
    x = grid.make_axis(LAYERS, showgrid=False)
    layout = grid.lay_out(names, x, _vertical_axis(top), grid.Shape(shared=False))
    return apply_style(figure).update_layout(grid.remove_legend(grid.change_axes(layout, axes)))


def draw_by_compression(frame: pd.DataFrame, models: Sequence[str]) -> go.Figure:
    """Draw one panel per model and stack: the median against the compression, one line per layer.

    frame, models: as in `draw_by_layer`; the name of a compressed model is BASE@METHOD. The dense model is on
    the left. Layers with the same last value share a name at the right end of their lines.
    """
    import plotly.graph_objects as go

    rows = _name_bases(frame)
    panels = sorted({(base, stack) for base, stack in zip(rows["base"], rows["stack"], strict=True)}, key=_order)
    methods = order_methods(rows["method"].unique().tolist())
    title, labels = label_methods(methods)
    top = _top(rows["median"])
    figure = go.Figure()
    for panel, (base, stack) in enumerate(panels):
        part = rows[(rows["base"] == base) & (rows["stack"] == stack)]
        for trace in _layer_lines(part, methods, choose_colour(base, models)):
            figure.add_trace(trace.update(grid.axis_names(panel)))
    ticks = {"tickvals": list(range(len(methods))), "ticktext": labels, "range": [-0.3, len(methods) - 1 + NAMES]}
    x = grid.make_axis(title, showgrid=False, **ticks)
    shape = grid.Shape(columns=min(2, len(panels)), narrow=1, shared=False)
    layout = grid.lay_out([f"{base}\n{stack}" for base, stack in panels], x, _vertical_axis(top), shape)
    return apply_style(figure).update_layout(grid.remove_legend(layout))


def order_methods(methods: Sequence[str]) -> list[str]:
    """Return the methods with the dense model ("") first, then by name, and by their number from large to small."""

    def sort_key(method: str) -> tuple[bool, str, float, str]:
        name, number = _split(method)
        return (method != "", name, -number if number is not None else math.inf, method)

    return sorted(methods, key=sort_key)


def label_methods(methods: Sequence[str]) -> tuple[str, list[str]]:
    """Return the title of the axis and one label per method, the number alone if methods differ only in it."""
    parts = [_split(method) for method in methods if method]
    if len({name for name, _ in parts}) == 1 and all(number is not None for _, number in parts):
        return f"compressed model ({parts[0][0]}-…)", [f"{_split(m)[1]:g}" if m else DENSE for m in methods]
    return "compression", ["<br>".join(map(escape, m.rsplit("-", 1))) if m else DENSE for m in methods]


def count_changes(frame: pd.DataFrame) -> tuple[int, int, float]:
    """Return how many medians of compressed models differ from the dense model's, of how many, and by how much most.

    frame: as in `draw_by_compression`. A median without one of the dense model is not counted.
    """
    rows = _name_bases(frame)
    keys = ["base", "stack", "layer", "normed"]
    dense = rows[rows["model"] == rows["base"]][[*keys, "median"]]
    pairs = rows[rows["model"] != rows["base"]].merge(dense, on=keys, suffixes=("", "_dense"))
    changes = (pairs["median"] - pairs["median_dense"]).abs()
    return int((changes > 0).sum()), len(changes), float(changes.max()) if len(changes) else 0.0


def name_layer(layer: int, normed: bool) -> str:
    """Return the number of a layer, with ′ for the state after the final norm."""
    return f"{layer}′" if normed else str(layer)


def list_layers(names: Sequence[str]) -> str:
    """Return names of layers as text, with runs of three or more numbers as a range: 0, 2–4, 4′."""
    texts: list[list[str]] = []
    for name in names:
        follows = texts and name.isdigit() and texts[-1][-1].isdigit() and int(name) == int(texts[-1][-1]) + 1
        if follows:
            texts[-1].append(name)
        else:
            texts.append([name])
    return ", ".join(f"{run[0]}–{run[-1]}" if len(run) > 2 else ", ".join(run) for run in texts)


def _name_bases(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the rows that have a median, with the base and the method of each model."""
    parts = frame["model"].str.partition("@")
    rows: pd.DataFrame = frame.assign(base=parts[0], method=parts[2], median=frame["median"].astype(float))
    return rows[rows["median"].notna()]


def _order(panel: tuple[str, str]) -> tuple[str, bool, str]:
    """Sort by model, the encoder before the decoder."""
    return panel[0], panel[1] == "decoder", panel[1]


def _place_layers(rows: pd.DataFrame) -> list[_Place]:
    """Return the layers of a model in the order of computation, with free positions between stacks."""
    layers = set(zip(rows["stack"].map(str), rows["layer"].map(int), rows["normed"].map(bool), strict=True))
    ordered = sorted(layers, key=lambda state: (state[0] == "decoder", state))
    places: list[_Place] = []
    for stack, layer, normed in ordered:
        step = 1 if not places or places[-1].stack == stack else APART
        places.append(_Place(places[-1].x + step if places else 0, stack, layer, normed))
    return places


def _ticks(places: Sequence[_Place]) -> dict[str, Any]:
    """Return one label per layer, thinned to TICKS labels; the range leaves space for the names of stacks."""
    kept = places[:: -(-len(places) // TICKS)]
    texts = {"tickvals": [state.x for state in kept], "ticktext": [state.name for state in kept]}
    return {**texts, "range": [-0.7, max(places[-1].x, 3) + 0.7]}


def _top(values: pd.Series) -> float:
    return float(values.max()) if len(values) and math.isfinite(values.max()) else 1.0


def _vertical_axis(top: float) -> dict[str, Any]:
    """Return an axis from zero with whole numbers, and space above the highest value for a line of text."""
    step = max(1, math.ceil(top / 5))
    return grid.make_axis(TITLE, range=[0, top * 1.22], dtick=step, tick0=0)


def _stack(rows: pd.DataFrame, places: Sequence[_Place], model: str, colour: str) -> go.Scatter:
    import plotly.graph_objects as go

    keyed = rows.set_index(["stack", "layer", "normed"]).sort_index()
    part = keyed.loc[[(state.stack, state.layer, state.normed) for state in places]]
    middle, low, high = (part[column].to_numpy(dtype=float) for column in ("median", "low", "high"))
    return go.Scatter(
        x=[state.x for state in places],
        y=middle,
        mode="lines+markers",
        name=escape(model),
        showlegend=False,
        line={"color": colour, "width": 2},
        marker={"symbol": "circle", "size": 7, "color": colour},
        error_y={"array": high - middle, "arrayminus": middle - low, "thickness": 1, "width": 3},
        customdata=[
            [escape(model), escape(state.stack), state.name, int(n)] for state, n in zip(places, part["n"], strict=True)
        ],
        hovertemplate="%{customdata[0]} · %{customdata[1]} · layer %{customdata[2]}"
        "<br>d(0.8) median %{y} over %{customdata[3]}<extra></extra>",
    )


def _stack_name(places: Sequence[_Place], stack: str, top: float) -> go.Scatter:
    return _text([(places[0].x + places[-1].x) / 2], [top * 1.08], [escape(stack)], "top center")


def _layer_lines(part: pd.DataFrame, methods: Sequence[str], colour: str) -> Iterator[go.Scatter]:
    """Yield one line per layer of a model and stack, then the names at their right ends."""
    import plotly.graph_objects as go

    ends: dict[tuple[int, float], list[str]] = {}
    names = [name_layer(layer, normed) for layer, normed in zip(part["layer"], part["normed"], strict=True)]
    part = part.assign(name=names).sort_values(["layer", "normed"])
    for name, rows in part.groupby("name", sort=False):
        medians = rows.set_index("method")["median"]
        shown = [(x, float(medians[method])) for x, method in enumerate(methods) if method in medians]
        ends.setdefault(shown[-1], []).append(str(name))
        yield go.Scatter(
            x=[x for x, _ in shown],
            y=[y for _, y in shown],
            mode="lines+markers",
            name=f"layer {name}",
            showlegend=False,
            line={"color": colour, "width": 1.5},
            marker={"symbol": "circle", "size": 6, "color": colour},
            customdata=[[name, escape(methods[x] or DENSE)] for x, _ in shown],
            hovertemplate="layer %{customdata[0]} · %{customdata[1]}<br>d(0.8) median %{y}<extra></extra>",
        )
    yield _text(
        [x for x, _ in ends],
        [y for _, y in ends],
        # Plotly starts a text in the middle of its point.
        [f"\u00a0\u00a0layer{'s' if len(names) > 1 else ''} {list_layers(names)}" for names in ends.values()],
        "middle right",
    )


def _text(x: Sequence[float], y: Sequence[float], texts: Sequence[str], position: str) -> go.Scatter:
    import plotly.graph_objects as go

    how = {"mode": "text", "textposition": position, "textfont": {"size": 10}, "cliponaxis": False}
    return go.Scatter(x=list(x), y=list(y), text=list(texts), **how, hoverinfo="skip", showlegend=False)


def _split(method: str) -> tuple[str, float | None]:
    """Return the name and the number of a method such as svd-0.25; None without a number."""
    name, _, number = method.rpartition("-")
    try:
        return name, float(number)
    except ValueError:
        return method, None

"""Figures of compressed models: accuracy against time, and scores against size.

Printed values come from Yu et al. 2026, Tables 2 to 4.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tsfmscope.tasks.report import colorscale
from tsfmscope.tasks.report.charts import grid
from tsfmscope.tasks.report.charts.figures import COLOURS, SYMBOLS, apply_style, escape
from tsfmscope.tasks.report.charts.labels import Frame, Label, draw_labels, sample_line, surround

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

# Methods, in the order that assigns the colours of figures.COLOURS.
METHODS = (
    "svd",
    "joint",
    "activation-aware",
    "activation-aware-svd",
    "project",
    "activation-aware-2step",
    "other",
)
# Kind of a dense model whose weights are read in another precision, such as bfloat16.
READ = "other precision"
BASELINES = ("seasonal-naive", "auto-ets", "auto-theta", "auto-arima")
# Column of a score -> the title of its panel.
QUANTITIES = {
    "wql_ratio": "WQL",
    "mase_ratio": "MASE",
    "overlap": "overlap of the 10 likeliest tokens",
    "lppl": "log perplexity (LPPL)",
}
FRONTIER = "Pareto front"
# Size in pixels of the panels in the PNG, for labels: all panels of a row, height of one panel.
WIDTH, HEIGHT = 780, 300
# Pixels of a label right of the points and above them.
ROOM = 70
# Factor between the positions of two methods at the same size.
DODGE = 1.07
SHARES = (0.05, 0.1, 0.15, 0.25, 0.5, 1.0)


def draw_frontier(frame: pd.DataFrame) -> go.Figure:
    """Draw WQL against seconds per series, both relative to the dense model; one panel per dense model.

    frame: columns of `plots.frontier.COLUMNS`; rows without positive ratios are left out. Both axes are
    logarithmic, thin lines mark the dense model. The colour shows the method, the label the share of the
    attention that is left. Baselines are open grey marks with their names. A dotted line joins the Pareto
    front: no other model is both faster and more accurate.
    """
    import plotly.graph_objects as go

    rows = frame[(frame["time_ratio"] > 0) & (frame["wql_ratio"] > 0)]
    bases = sorted(rows["base"].unique())
    columns = min(2, max(1, len(bases)))
    panel = (WIDTH / columns, HEIGHT)
    x_range, y_range = _padded(rows["time_ratio"], panel[0], ROOM), _padded(rows["wql_ratio"], panel[1], 30)
    figure, shown = go.Figure(), set[str]()
    for position, base in enumerate(bases):
        part, axes = rows[rows["base"] == base], grid.axis_names(position)
        figure.add_traces(
            [_guide([1, 1], _powers(y_range)).update(axes), _guide(_powers(x_range), [1, 1]).update(axes)]
        )
        best = part[part["on_frontier"]].sort_values("time_ratio")
        line = {"width": 1.5, "dash": "dot", "color": colorscale.GREY}
        figure.add_trace(
            go.Scatter(
                x=best["time_ratio"].tolist(), y=best["wql_ratio"].tolist(), mode="lines", name=FRONTIER, line=line,
                hoverinfo="skip", showlegend=position == 0, **axes,
            )
        )  # fmt: skip
    # The outer loop is over groups, so that the legend lists them in their order.
    for name, points in _groups(rows):
        for position, base in enumerate(bases):
            if len(part := points[points["base"] == base]):
                in_legend = name not in shown and part["kind"].iloc[0] not in ("baseline", "dense")
                figure.add_trace(_marks(name, part, in_legend=in_legend).update(grid.axis_names(position)))
                shown.add(name)
    for position, base in enumerate(bases):
        part = rows[rows["base"] == base]
        where = Frame(x_range, y_range, *panel, log_x=True, log_y=True)
        best = part[part["on_frontier"]].sort_values("time_ratio")
        obstacles = np.concatenate(
            [
                surround(where.to_pixels(part["time_ratio"].tolist(), part["wql_ratio"].tolist())),
                sample_line(best["time_ratio"].tolist(), best["wql_ratio"].tolist(), where),
                sample_line([1, 1], _powers(y_range), where),
                sample_line(_powers(x_range), [1, 1], where),
            ]
        )
        labels = [_label(row) for row in part.to_dict("records")]
        figure.add_traces([trace.update(grid.axis_names(position)) for trace in draw_labels(labels, obstacles, where)])
    x = _plain_log_axis("time per series ÷ dense (log)", x_range)
    y = _plain_log_axis("forecast error, WQL ÷ dense (log)", y_range)
    shape = grid.Shape(columns=columns, narrow=1, row=HEIGHT)
    return apply_style(figure).update_layout(**grid.lay_out([str(base) for base in bases], x, y, shape))


def draw_compressed(frame: pd.DataFrame, intervals: pd.DataFrame) -> go.Figure:
    """Draw scores relative to the original against the attention's size, one colour per method.

    frame: columns of `plots.compressed.COLUMNS`. intervals: columns of `plots.compressed.INTERVALS`. There is one
    panel per family and score. Models of equal size stand side by side, with 95 % intervals, which may end
    outside the panel. Printed values are grey lines: dotted for the zero-shot benchmark, else dashed.
    """
    import plotly.graph_objects as go

    cells = [
        (family, name)
        for family in sorted(frame["family"].unique())
        for name in QUANTITIES
        if (frame["family"].eq(family) & frame[name].notna()).any()
    ]
    used = set(frame.loc[frame["whose"] == "measured", "method"])
    methods = [name for name in METHODS if name in used] + sorted(used - set(METHODS))
    keys = [_key(name) for name in methods]
    figure, shown, ranges = go.Figure(keys), {escape(name) for name in methods}, list[tuple[float, float]]()
    for position, (family, quantity) in enumerate(cells):
        part = frame[(frame["family"] == family) & frame[quantity].notna()]
        axes = grid.axis_names(position)
        traces = [_guide([0.9 * SHARES[0], 1.2], [1, 1])]
        printed = part[part["whose"] == "published"]
        traces += [_printed(name, rows, quantity) for name, rows in printed.groupby(_benchmark(printed), sort=True)]
        measured = join_intervals(part[part["whose"] == "measured"], intervals, quantity)
        traces += [
            _measured(name, rows, DODGE ** (methods.index(str(name)) - (len(methods) - 1) / 2))
            for name, rows in measured.groupby("method", sort=True)
        ]
        for trace in traces:
            figure.add_trace(trace.update(axes))
            figure.data[-1].showlegend = bool(trace.name) and trace.name not in shown
            shown.add(trace.name)
        ranges.append(_value_range([*measured["value"], *printed[quantity]], is_log=quantity != "overlap"))
    sizes = frame["size"].astype(float)
    x_range = [round(np.log10(sizes.min()) - 0.08, 3), round(np.log10(max(1.0, sizes.max())) + 0.05, 3)]
    ticks = [share for share in SHARES if np.log10(share) >= x_range[0]]
    x = grid.make_axis(
        "share of the attention left (log)", type="log", range=x_range, tickvals=ticks,
        ticktext=[f"{share:.0%}" for share in ticks],
    )  # fmt: skip
    shape = grid.Shape(columns=min(3, max(2, len(cells))), narrow=1, row=190, shared=False)
    titles = [f"{family}\n{QUANTITIES[name]}" for family, name in cells]
    laid = grid.lay_out(titles, x, grid.make_axis("relative to the original"), shape)
    changes = {}
    for position, ((_, quantity), limits) in enumerate(zip(cells, ranges, strict=True)):
        name = grid.axis_names(position)["yaxis"].replace("y", "yaxis")
        changes[name] = _value_axis(limits, is_log=quantity != "overlap")
    return apply_style(figure).update_layout(**grid.change_axes(laid, changes))


def join_intervals(measured: pd.DataFrame, intervals: pd.DataFrame, quantity: str) -> pd.DataFrame:
    """Return the measured rows with columns value, low, high and n of a score.

    The value is the estimate that the interval belongs to, or the row's own value if there is no test.
    """
    tested = intervals[intervals["quantity"] == quantity][["model", "n", "estimate", "low", "high"]]
    rows = measured.merge(tested, on="model", how="left")
    return rows.assign(value=rows["estimate"].astype(float).fillna(rows[quantity].astype(float)))


def _measured(method: object, rows: pd.DataFrame, shift: float) -> go.Scatter:
    import plotly.graph_objects as go

    rows, colour = rows.sort_values("size"), _colour(str(method))
    low, high, value = (rows[name].astype(float) for name in ("low", "high", "value"))
    spans = [
        f"95 % interval {bottom:.3g} to {top:.3g}, n = {int(n)}" if np.isfinite(bottom) else "no interval"
        for bottom, top, n in zip(low, high, rows["n"].fillna(0), strict=True)
    ]
    return go.Scatter(
        x=(rows["size"].astype(float) * shift).round(5).tolist(),
        y=value.tolist(),
        mode="markers",
        name=escape(method),
        legendgroup=escape(method),
        showlegend=False,
        marker={"color": colour, "size": 7, "symbol": "circle"},
        error_y={
            "array": (high - value).fillna(0).tolist(),
            "arrayminus": (value - low).fillna(0).tolist(),
            "thickness": 1.2,
            "width": 0,
        },
        customdata=[
            [escape(model), f"{size:.3g}", span]
            for model, size, span in zip(rows["model"], rows["size"], spans, strict=True)
        ],
        hovertemplate="%{customdata[0]}<br>share left %{customdata[1]}<br>%{y:.3g}<br>%{customdata[2]}<extra></extra>",
    )


def _key(method: str) -> go.Scatter:
    import plotly.graph_objects as go

    marker = {"color": _colour(method), "size": 7}
    name = escape(method)
    return go.Scatter(x=[None], y=[None], mode="markers", name=name, legendgroup=name, marker=marker)


def _printed(benchmark: object, rows: pd.DataFrame, quantity: str) -> go.Scatter:
    import plotly.graph_objects as go

    rows = rows.sort_values("size", kind="stable")
    name = f"paper{f', {benchmark}' if benchmark else ''}"
    return go.Scatter(
        x=rows["size"].astype(float).tolist(),
        y=rows[quantity].astype(float).tolist(),
        mode="lines+markers",
        name=escape(name),
        legendgroup=escape(name),
        showlegend=False,
        line={"color": colorscale.GREY, "width": 1.4, "dash": "dot" if benchmark == "zero-shot" else "dash"},
        marker={"color": colorscale.GREY, "size": 6, "symbol": "circle-open"},
        hovertemplate="%{fullData.name}<br>mean rank ÷ width %{x:.3g}<br>%{y:.3g}<extra></extra>",
    )


def _value_range(values: Sequence[float], *, is_log: bool) -> tuple[float, float]:
    """Return the range of the points and of 1, with some space; as log10 if the axis is logarithmic."""
    known = np.array([*values, 1.0], dtype=float)
    ends = np.log10(known[known > 0]) if is_log else known
    room = max(0.12 * float(ends.max() - ends.min()), 0.04)
    return round(float(ends.min()) - room, 3), round(float(ends.max()) + room, 3)


def _value_axis(limits: tuple[float, float], *, is_log: bool) -> dict[str, Any]:
    if not is_log:
        return {"range": list(limits), "nticks": 5}
    low, high = _powers(limits)
    fine, coarse = (0.6, 0.7, 0.8, 0.9, 0.95, 1, 1.05, 1.1, 1.2, 1.3, 1.4, 1.6), (0.1, 0.2, 0.5, 1, 2, 3, 5, 10, 20, 50)
    ticks = [at for at in (fine if high / low < 1.9 else coarse) if low <= at <= high]
    return {"type": "log", "range": list(limits), "tickvals": ticks, "ticktext": [f"{at:g}" for at in ticks]}


def _plain_log_axis(title: str, limits: tuple[float, float]) -> dict[str, Any]:
    """Return a logarithmic axis with plain numbers: 1, 2, 5 within two decades, else powers of ten."""
    low, high = _powers(limits)
    decades = range(int(np.floor(limits[0])), int(np.ceil(limits[1])) + 1)
    firsts = (1, 2, 5) if limits[1] - limits[0] <= 2 else (1,)
    ticks = [first * 10.0**decade for decade in decades for first in firsts]
    ticks = [at for at in ticks if low <= at <= high]
    short = limits[1] - limits[0] <= 4
    texts = [f"{at:g}" if short else colorscale.format_power(np.log10(at)) for at in ticks]
    return grid.make_axis(title, type="log", range=list(limits), tickvals=ticks, ticktext=texts)


def _padded(values: pd.Series, pixels: float, room: float) -> tuple[float, float]:
    """Return the range of the values and of 1 as log10, with `room` pixels at both ends."""
    low, high = (float(np.log10(end)) for end in (min(1.0, values.min()), max(1.0, values.max())))
    span = max(high - low, 0.1)
    more = span * room / (pixels - 2 * room)
    return round(low - more, 3), round(high + more, 3)


def _powers(limits: tuple[float, float]) -> list[float]:
    return [float(10.0**end) for end in limits]


def _guide(x: Sequence[float], y: Sequence[float]) -> go.Scatter:
    import plotly.graph_objects as go

    line = {"width": 0.9, "color": colorscale.GREY}
    return go.Scatter(x=x, y=y, mode="lines", line=line, hoverinfo="skip", showlegend=False)


def _label(row: Mapping[Any, Any]) -> Label:
    """Return the label of a point: a baseline's or precision's name, or the share of the attention that is left."""
    kind, share = row["kind"], row["attention_ratio"]
    if kind in ("baseline", READ):
        text = str(row["model"])
    else:
        text = "dense" if kind == "dense" else f"{share:.3g}" if share == share and share is not None else ""
    colour = colorscale.GREY if kind == "baseline" else _colour(kind)
    return Label(escape(text), float(row["time_ratio"]), float(row["wql_ratio"]), colour)


def _groups(part: pd.DataFrame) -> list[tuple[str, pd.DataFrame]]:
    """Return the non-empty groups of rows by name: other precision, methods, baselines, dense."""
    groups = [(name, part[part["kind"] == name]) for name in (READ, *METHODS)]
    local = part[part["kind"] == "baseline"]
    order = [*BASELINES, *sorted(set(local["model"]) - set(BASELINES))]
    groups += [(name, local[local["model"] == name]) for name in order]
    # The dense model is drawn last, on top of the others.
    groups.append(("dense", part[part["kind"] == "dense"]))
    return [(name, points) for name, points in groups if len(points)]


def _marks(name: str, points: pd.DataFrame, *, in_legend: bool) -> go.Scatter:
    import plotly.graph_objects as go

    local = points["kind"].iloc[0] == "baseline"
    colour = colorscale.GREY if local else _colour(name)
    position = BASELINES.index(name) if name in BASELINES else 0
    whole = "star" if name == "dense" else "star-open" if name == READ else "circle"
    symbol = f"{SYMBOLS[1 + position]}-open" if local else whole
    sizes = [_size(share, name) for share in points["attention_ratio"]]
    return go.Scatter(
        x=points["time_ratio"].tolist(),
        y=points["wql_ratio"].tolist(),
        mode="markers",
        name=escape(name),
        showlegend=in_legend,
        legendgroup=escape(name),
        marker={
            "color": colour,
            "symbol": symbol,
            "size": sizes,
            "line": {"width": 1.5, "color": colour},
            "opacity": 1,
        },
        customdata=[_describe_mark(row) for row in points.to_dict("records")],
        hovertemplate="<b>%{customdata}</b><br>time %{x:.3g}<br>WQL %{y:.4g}<extra></extra>",
    )


def _describe_mark(row: Mapping[Any, Any]) -> str:
    share = row["attention_ratio"]
    left = f", {share:.0%} of the attention" if share == share and share is not None else ""
    return escape(f"{row['model']}{left}, {row['seconds']:.3g} s per series")


def _size(share: float | None, name: str) -> float:
    """Return the size of a mark in pixels, which grows with the share of the attention that is left."""
    if share is None or share != share:
        return 15.0 if name in ("dense", READ) else 9.0
    return float(round(5 + 8 * min(share, 1.0) ** 0.5, 1))


def _benchmark(part: pd.DataFrame) -> pd.Series:
    """Return the benchmark of each row: the column `model` for printed rows, "" for measured ones.

    Measured rows therefore form one line per method.
    """
    return part["model"].where(part["whose"] == "published", "").fillna("").rename("benchmark")


def _colour(name: str) -> str:
    if name in ("dense", READ):
        return COLOURS[0]
    return COLOURS[1 + METHODS.index(name)] if name in METHODS else COLOURS[1 + len(METHODS)]

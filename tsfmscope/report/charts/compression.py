"""Scores of compressed models against their size, and the colours of methods.

Printed values come from Yu et al. 2026, Tables 2 to 4.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tsfmscope.compression.methods import METHODS as COMPRESSION_METHODS
from tsfmscope.report import colorscale
from tsfmscope.report.charts import grid
from tsfmscope.report.charts.figures import COLOURS, SYMBOLS, apply_style, escape

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

# Methods, in the order that assigns the colours of figures.COLOURS.
METHODS: tuple[str, ...] = (*COMPRESSION_METHODS, "other")
# Kind of a dense model whose weights are read in another precision, such as bfloat16.
READ = "other precision"
# Column of a score -> the title of its panel.
QUANTITIES = {
    "wql_ratio": "WQL",
    "mase_ratio": "MASE",
    "overlap": "overlap of the 10 likeliest tokens",
    "lppl": "log perplexity (LPPL)",
}
# Factor between the positions of two methods at the same size, and the largest between the first and the last.
DODGE, LARGEST_DODGE = 1.07, 1.5
SHARES = (0.05, 0.1, 0.15, 0.25, 0.5, 1.0)


def draw_compressed(frame: pd.DataFrame, intervals: pd.DataFrame) -> go.Figure:
    """Draw scores relative to the original against the attention's size, one colour and symbol per method.

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
    keys = [
        grid.draw_key(
            escape(name),
            legendgroup=escape(name),
            mode="markers",
            marker={"color": choose_colour(name), "symbol": choose_symbol(name), "size": 7},
        )
        for name in methods
    ]
    dodge = min(DODGE, LARGEST_DODGE ** (1 / max(1, len(methods) - 1)))
    figure, shown, ranges = go.Figure(keys), {escape(name) for name in methods}, list[tuple[float, float]]()
    for position, (family, quantity) in enumerate(cells):
        part = frame[(frame["family"] == family) & frame[quantity].notna()]
        axes = grid.axis_names(position)
        traces = [grid.draw_guide([0.9 * SHARES[0], 1.2], [1, 1])]
        printed = part[part["whose"] == "published"]
        traces += [_printed(name, rows, quantity) for name, rows in printed.groupby(_benchmark(printed), sort=True)]
        measured = join_intervals(part[part["whose"] == "measured"], intervals, quantity)
        traces += [
            _measured(name, rows, dodge ** (methods.index(str(name)) - (len(methods) - 1) / 2))
            for name, rows in measured.groupby("method", sort=True)
        ]
        for trace in traces:
            figure.add_trace(trace.update(axes))
            figure.data[-1].showlegend = bool(trace.name) and trace.name not in shown
            shown.add(trace.name)
        ranges.append(_value_range([*measured["value"], *printed[quantity]], is_log=quantity != "overlap"))
    sizes = frame["size"].astype(float)
    x_range = [round(np.log10(sizes.min()) - 0.12, 3), round(np.log10(max(1.0, sizes.max())) + 0.05, 3)]
    ticks = [share for share in SHARES if np.log10(share) >= x_range[0]]
    x = grid.make_axis(
        "share of the attention left (log)", type="log", range=x_range, tickvals=ticks,
        ticktext=[f"{share:.0%}" for share in ticks],
    )  # fmt: skip
    shape = grid.Shape(columns=min(3, max(2, len(cells))), narrow=1, row=190, shared=False)
    titles = [f"{family}\n{QUANTITIES[name]}" for family, name in cells]
    layout = grid.lay_out(titles, x, grid.make_axis("relative to the original"), shape)
    changes = {}
    for position, ((_, quantity), limits) in enumerate(zip(cells, ranges, strict=True)):
        name = grid.axis_names(position)["yaxis"].replace("y", "yaxis")
        changes[name] = _value_axis(limits, is_log=quantity != "overlap")
    return apply_style(figure).update_layout(**grid.change_axes(layout, changes))


def join_intervals(measured: pd.DataFrame, intervals: pd.DataFrame, quantity: str) -> pd.DataFrame:
    """Return the measured rows with columns value, low, high and n of a score.

    The value is the estimate that the interval belongs to, or the row's own value if there is no test.
    """
    tested = intervals[intervals["quantity"] == quantity][["model", "n", "estimate", "low", "high"]]
    rows = measured.merge(tested, on="model", how="left")
    return rows.assign(value=rows["estimate"].astype(float).fillna(rows[quantity].astype(float)))


def _measured(method: object, rows: pd.DataFrame, shift: float) -> go.Scatter:
    import plotly.graph_objects as go

    rows, colour = rows.sort_values("size"), choose_colour(str(method))
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
        marker={"color": colour, "size": 7, "symbol": choose_symbol(str(method))},
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
    ticks = grid.choose_ratio_ticks(*(10.0**end for end in limits))
    return {"type": "log", "range": list(limits), "tickvals": ticks, "ticktext": [f"{at:g}" for at in ticks]}


def _benchmark(part: pd.DataFrame) -> pd.Series:
    """Return the benchmark of each row: the column `model` for printed rows, "" for measured ones.

    Measured rows therefore form one line per method.
    """
    return part["model"].where(part["whose"] == "published", "").fillna("").rename("benchmark")


def choose_colour(name: str) -> str:
    """Return the colour of a method, or of the dense model."""
    if name in ("dense", READ):
        return COLOURS[0]
    return COLOURS[1 + METHODS.index(name)] if name in METHODS else COLOURS[1 + len(METHODS)]


def choose_symbol(name: str) -> str:
    """Return the symbol of a method, since not all colours are easy to tell apart; a circle for other names."""
    return SYMBOLS[METHODS.index(name) % len(SYMBOLS)] if name in METHODS else SYMBOLS[0]

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
QUANTITIES = {"wql_ratio": "WQL", "mase_ratio": "MASE", "overlap": "top-10 overlap", "lppl": "LPPL"}
FRONTIER = "frontier: no model is both faster and more accurate"
# Largest number of distinct sizes that are all labelled; with more, the axis has round numbers.
TICKS = 4


def draw_frontier(frame: pd.DataFrame) -> go.Figure:
    """Draw WQL against seconds per series, both relative to the dense model; one panel per dense model.

    frame: columns of `plots.frontier.COLUMNS`; rows without positive ratios are left out. Both axes are
    logarithmic. The colour shows the method, the size of a mark the share of attention that is left.
    Baselines are open grey marks. A dotted line joins the models of the frontier: no other model is both
    faster and more accurate.
    """
    import plotly.graph_objects as go

    rows = frame[(frame["time_ratio"] > 0) & (frame["wql_ratio"] > 0)]
    bases = sorted(rows["base"].unique())
    figure = go.Figure()
    shown: set[str] = set()
    for position, base in enumerate(bases):
        part, axes = rows[rows["base"] == base], grid.axis_names(position)
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
                figure.add_trace(_marks(name, part, in_legend=name not in shown).update(grid.axis_names(position)))
                shown.add(name)
    x = grid.make_log_axis(rows["time_ratio"], "seconds per series ÷ dense (log)")
    y = grid.make_log_axis(rows["wql_ratio"], "WQL ÷ dense (log)")
    shape = grid.Shape(columns=min(3, max(2, len(bases))), narrow=1, row=300)
    return apply_style(figure).update_layout(**grid.lay_out(bases, _plain(x), _plain(y), shape))


def draw_compressed(frame: pd.DataFrame) -> go.Figure:
    """Draw scores relative to the original against the attention's size: one line per method.

    frame: columns of `plots.compressed.COLUMNS`. There is one panel per family and score. Printed
    values are grey: dotted for the zero-shot benchmark, else dashed.
    """
    cells = [
        (family, name)
        for family in sorted(frame["family"].unique())
        for name in QUANTITIES
        if (frame["family"].eq(family) & frame[name].notna()).any()
    ]
    lines = []
    for position, (family, quantity) in enumerate(cells):
        part = frame[(frame["family"] == family) & frame[quantity].notna()]
        for (whose, method, name), points in part.groupby(
            ["whose", "method", _benchmark(part)], dropna=False, sort=True
        ):
            ours = whose == "measured"
            dash = "solid" if ours else ("dash" if name != "zero-shot" else "dot")
            text = str(method) if ours else f"printed{', ' + str(name) if name else ''}"
            colour = _colour(str(method)) if ours else colorscale.GREY
            lines.append(
                (position, text, dash, colour, points["size"], points[quantity], points["model"] if ours else None)
            )
    titles = [f"{family}\n{QUANTITIES[name]}" for family, name in cells]
    return _against_size(titles, lines, "share of the attention that is left (log)", columns=4)


def draw_pretrained(frame: pd.DataFrame) -> go.Figure:
    """Draw scores relative to the dense model of the same seed against size; one panel per family and score.

    frame: columns of `plots.pretrained.COLUMNS`. A line is the mean over seeds, a point is one seed.
    Dashed: flat ranks; dotted: a reused embedding; grey: printed values.
    """
    cells = list(frame[["family", "quantity"]].drop_duplicates().itertuples(index=False, name=None))
    named = sorted(frame.loc[frame["whose"] == "measured", "line"].unique())
    lines = []
    for position, (family, quantity) in enumerate(cells):
        part = frame[(frame["family"] == family) & (frame["quantity"] == quantity)]
        for (whose, line), points in part.groupby(["whose", "line"], sort=True):
            ours = whose == "measured"
            flat = points["schedule"].iloc[0] == "flat"
            dash = "dash" if flat else "dot" if "reused" in str(line) else "solid"
            colour = COLOURS[named.index(line) % len(COLOURS)] if ours else colorscale.GREY
            lines.append(
                (position, str(line), dash, colour, points["size"], points["value"], points["model"] if ours else None)
            )
    titles = [f"{family}\n{quantity}" for family, quantity in cells]
    return _against_size(titles, lines, "size ratio (log)", columns=3)


def _against_size(
    titles: Sequence[str], lines: Sequence[tuple[int, str, str, str, Any, Any, Any]], x_title: str, *, columns: int
) -> go.Figure:
    """Draw values relative to the original against size, one panel per title.

    lines: panel, name, dash, colour, sizes, values, models. models: names of the measured points; None for
    printed ones.
    """
    import pandas as pd
    import plotly.graph_objects as go

    figure = go.Figure()
    shown: set[str] = set()
    for position, name, dash, colour, size, value, models in lines:
        points = pd.DataFrame({"x": size, "y": value}).sort_values("x", kind="stable")
        means = points.groupby("x", sort=True)["y"].mean()
        style = {"color": colour, "width": 2 if models is not None else 1.4, "dash": dash}
        figure.add_trace(
            go.Scatter(
                x=means.index.tolist(), y=means.tolist(), mode="lines", name=escape(name), legendgroup=escape(name),
                line=style, showlegend=name not in shown, hoverinfo="skip", **grid.axis_names(position),
            )
        )  # fmt: skip
        shown.add(name)
        labels = [escape(label) for label in (models if models is not None else [name] * len(points))]
        ordered = [labels[at] for at in np.argsort(np.asarray(size, dtype=float), kind="stable")]
        figure.add_trace(
            go.Scatter(
                x=points["x"].tolist(), y=points["y"].tolist(), mode="markers", name=escape(name), showlegend=False,
                legendgroup=escape(name), customdata=ordered, **grid.axis_names(position),
                marker={"color": colour, "size": 7, "symbol": "circle" if models is not None else "circle-open"},
                hovertemplate="%{customdata}<br>size %{x:.3g}<br>%{y:.3g}<extra></extra>",
            )
        )  # fmt: skip
    sizes = pd.concat([pd.Series(line[4], dtype=float) for line in lines])
    ticks = sorted(sizes.unique()) if sizes.nunique() <= TICKS else [0.1, 0.2, 0.5, 1.0]
    x = grid.make_log_axis(sizes, x_title) | {"tickvals": ticks, "ticktext": [f"{tick:.3g}" for tick in ticks]}
    y = grid.make_axis("relative to the original", nticks=5)
    shape = grid.Shape(columns=min(columns, max(2, len(titles))), narrow=2, row=190, shared=False)
    return apply_style(figure).update_layout(**grid.lay_out(titles, x, y, shape))


def _groups(part: pd.DataFrame) -> list[tuple[str, pd.DataFrame]]:
    """Return the non-empty groups of rows by name: dense, other precision, methods, baselines."""
    groups = [(name, part[part["kind"] == name]) for name in ("dense", READ, *METHODS)]
    local = part[part["kind"] == "baseline"]
    order = [*BASELINES, *sorted(set(local["model"]) - set(BASELINES))]
    groups += [(name, local[local["model"] == name]) for name in order]
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
        return 12.0 if name in ("dense", READ) else 9.0
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


def _plain(axis: dict[str, Any]) -> dict[str, Any]:
    """Return a logarithmic axis labelled by plain numbers, not powers, if it spans at most two decades."""
    low, high = axis.get("range", (0, 0))
    if high - low > 2:
        return axis
    return {**{name: value for name, value in axis.items() if name not in ("dtick", "tick0")}, "exponentformat": "none"}

"""Figures of a population of trainings: tests of isotropy against error, and the path of each training."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tsfmscope.report import colorscale
from tsfmscope.report.charts import grid
from tsfmscope.report.charts.figures import COLOURS, DASHES, apply_style, escape
from tsfmscope.report.charts.forest import fill_area, format_signed, is_number, write_text

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

# Groupings of the tests, in the order of their rows, and errors, in words.
GROUPINGS = {
    "across_runs": "across runs",
    "inside_families": "inside families",
    "across_seeds": "across seeds",
    "within_runs": "within runs",
}
ERRORS = {"nmse": "NMSE", "wql": "WQL"}
# Half of the data sets -> name, symbol and colour.
HALVES = {
    "explored": ("exploring half", "circle", COLOURS[0]),
    "confirmed": ("confirming half", "diamond-open", COLOURS[1]),
}
# Name and colour of the bands.
BAND, BAND_COLOUR = "too small to be found reliably", colorscale.set_opacity(colorscale.GREY, 0.22)
# Possible ends of the horizontal axis of the tests.
ENDS = (0.2, 0.5, 1.0)
# Pixels of a row, of the text above the rows, of the axis below them, and of a character of a row's name.
ROW, HEAD, FOOT, CHARACTER = 30, 76, 48, 6.7
# Half the height of a band, and the shift of each half of the data sets where a row has both, in rows.
THICKNESS, SHIFT = 0.36, 0.21
# Largest number of panels, one per family.
PANELS = 8
# Sizes of dots in pixels: the first and the last snapshot of a training, and those in between.
END, BETWEEN = 8, 3


def describe_limit(most: int, total: int, noun: str) -> list[str]:
    """Return a sentence for a caption if only `most` of `total` families or steps (noun) are drawn, else nothing."""
    return [f"{most} of {total} {noun} are shown; the CSV has all."] if total > most else []


def draw_tests(rows: pd.DataFrame) -> go.Figure:
    """Draw one row per grouping and error: the correlation, its interval, and the effects that are too small to find.

    rows: half, grouping, error, rho, low, high, detectable, p, p_by, n_runs. `rho` is a number; other missing values
    are not drawn. A row has one mark per half of the data sets.
    """
    import plotly.graph_objects as go

    pairs, end = order_tests(rows), _find_end(rows)
    top = len(pairs) - 0.1
    figure = go.Figure([grid.draw_guide([0, 0], [-0.6, top])])
    for position in range(1, len(pairs)):
        if pairs[position][0] != pairs[position - 1][0]:
            y = len(pairs) - position - 0.5
            figure.add_trace(grid.draw_guide([-1.1 * end, 1.1 * end], [y, y], width=0.5))
    for row in rows.to_dict("records"):
        pair = (row["grouping"], row["error"])
        has_both = ((rows["grouping"] == pair[0]) & (rows["error"] == pair[1])).sum() > 1
        shift = (SHIFT if row["half"] == "explored" else -SHIFT) if has_both else 0.0
        figure.add_traces(_test(row, len(pairs) - 1 - pairs.index(pair) + shift, THICKNESS / (2 if has_both else 1)))
    figure.add_traces(_test_keys(rows))
    figure.add_traces(
        [
            write_text(-1.1 * end, top - 0.1, "less error (claim)", "middle right"),
            write_text(1.1 * end, top - 0.1, "more error", "middle left"),
        ]
    )
    names = [name_test(*pair) for pair in reversed(pairs)]
    inner, ticks = ROW * (len(pairs) + 0.9), [end * share for share in (-1, -0.5, 0, 0.5, 1)]
    return apply_style(figure).update_layout(
        height=HEAD + FOOT + inner,
        legend={"y": 1 + 8 / inner},
        margin={"l": 14 + CHARACTER * max(map(len, names)), "r": 14, "t": HEAD, "b": FOOT},
        xaxis=grid.make_axis(
            "mean rank correlation ρ", range=[-1.1 * end, 1.1 * end], tickvals=ticks,
            ticktext=[f"{tick:g}".replace("-", "−") for tick in ticks],
        ),
        yaxis=grid.make_axis(
            "", range=[-0.6, top + 0.2], tickvals=list(range(len(pairs))), ticktext=list(map(escape, names)),
            showgrid=False,
        ),
    )  # fmt: skip


def order_tests(rows: pd.DataFrame) -> list[tuple[str, str]]:
    """Return grouping and error of every row, from the top: in the order of GROUPINGS, then of ERRORS."""
    groupings, errors = list(GROUPINGS), list(ERRORS)

    def sort_key(pair: tuple[str, str]) -> tuple[int, str, int]:
        grouping, error = pair
        known = groupings.index(grouping) if grouping in groupings else len(groupings)
        return known, grouping, errors.index(error) if error in errors else len(errors)

    return sorted(set(zip(rows["grouping"], rows["error"], strict=True)), key=sort_key)


def name_test(grouping: str, error: str) -> str:
    """Return a row's name in words."""
    return f"{GROUPINGS.get(grouping, grouping.replace('_', ' '))}, {ERRORS.get(error, error)}"


def describe_test(row: Mapping[Hashable, Any]) -> str:
    """Return the correlation with its interval in words, such as −0.31 (−0.52 to −0.08)."""
    has_interval = is_number(row["low"]) and is_number(row["high"])
    interval = f" ({format_signed(row['low'])} to {format_signed(row['high'])})" if has_interval else ""
    return format_signed(row["rho"]) + interval


def draw_paths(frame: pd.DataFrame) -> go.Figure:
    """Draw NMSE against isotropy: one panel per family, one line per run through its snapshots by step.

    frame: family, size, run, step, is_final, parameters, validation_loss, isotropy, nmse, n_datasets; isotropy and
    nmse are numbers, nmse above 0. Colour and dash show the size, from the one with the fewest parameters. An open dot
    is the first snapshot of a run, a filled one its last weights. At most PANELS families are drawn.
    """
    import plotly.graph_objects as go

    families, sizes = list_families(frame)[:PANELS], order_sizes(frame)
    figure = go.Figure(_path_keys(sizes))
    ranges: dict[str, dict[str, Any]] = {}
    for position, family in enumerate(families):
        part, axes = frame[frame["family"] == family], grid.axis_names(position)
        for (size, _), run in part.groupby(["size", "run"], sort=True):
            figure.add_trace(_path(run.sort_values("step"), sizes.index(str(size)), len(sizes)).update(axes))
        ranges[axes["xaxis"].replace("x", "xaxis")] = _isotropy_range(part["isotropy"])
    shown = frame[frame["family"].isin(families)]
    columns = len(families) if len(families) <= 3 else 2 if len(families) == 4 else 4
    shape = grid.Shape(columns=columns, narrow=2, row=170, shared=False)
    layout = grid.lay_out(families, grid.make_axis("isotropy, −|ζ′ − null|"), _nmse_axis(shown["nmse"]), shape)
    return apply_style(figure).update_layout(**grid.change_axes(layout, ranges))


def list_families(frame: pd.DataFrame) -> list[str]:
    """Return the families by name."""
    return sorted(map(str, frame["family"].unique()))


def order_sizes(frame: pd.DataFrame) -> list[str]:
    """Return the sizes by their mean number of parameters, from the smallest; those without a number come last."""
    means = frame["parameters"].astype(float).groupby(frame["size"].astype(str)).mean()
    return sorted(means.index, key=lambda size: (means[size] if is_number(means[size]) else math.inf, size))


def _find_end(rows: pd.DataFrame) -> float:
    """Return the smallest of ENDS that no mark, interval or band exceeds."""
    largest = float(rows[["rho", "low", "high", "detectable"]].astype(float).abs().max().max())
    return next((end for end in ENDS if largest <= end), ENDS[-1])


def _test(row: Mapping[Hashable, Any], y: float, half_height: float) -> list[go.Scatter]:
    """Draw band, whisker and mark of one test."""
    import plotly.graph_objects as go

    name, symbol, colour = HALVES[row["half"]]
    traces = []
    if is_number(row["detectable"]):
        end, low, high = float(row["detectable"]), y - half_height, y + half_height
        traces.append(fill_area([-end, end, end, -end], [low, low, high, high], BAND_COLOUR))
    if is_number(row["low"]) and is_number(row["high"]):
        traces.append(grid.draw_guide([row["low"], row["high"]], [y, y], color=colour, width=2))
    marker = {"symbol": symbol, "size": 9, "color": colour, "line": {"width": 1.8, "color": colour}}
    texts = [
        f"<b>{escape(name_test(row['grouping'], row['error']))}</b>, {name}",
        f"ρ {describe_test(row)}",
        *_list_facts(row),
    ]
    traces.append(
        go.Scatter(
            x=[row["rho"]], y=[y], mode="markers", marker=marker, name=name, showlegend=False,
            customdata=[["<br>".join(texts)]], hovertemplate="%{customdata[0]}<extra></extra>",
        )
    )  # fmt: skip
    return traces


def _list_facts(row: Mapping[Hashable, Any]) -> list[str]:
    """Return p, the smallest effect that can be found and the number of runs in words, without missing ones."""
    facts = []
    if is_number(row["p"]):
        adjusted = f" (adjusted {row['p_by']:.2g})" if is_number(row["p_by"]) else ""
        facts.append(f"p = {row['p']:.2g}{adjusted}")
    if is_number(row["detectable"]):
        facts.append(f"found with a probability of 80 %: ±{row['detectable']:.2f}")
    if is_number(row["n_runs"]):
        facts.append(f"{int(row['n_runs'])} runs")
    return facts


def _test_keys(rows: pd.DataFrame) -> list[go.Scatter]:
    """Return a legend entry per half of the data sets that is drawn, and one for the bands."""
    keys = [
        grid.draw_key(name, mode="markers", marker={"symbol": symbol, "size": 9, "color": colour})
        for half, (name, symbol, colour) in HALVES.items()
        if half in set(rows["half"])
    ]
    has_bands = rows["detectable"].map(is_number).any()
    return [*keys, *([grid.draw_key(BAND, mode="lines", line={"color": BAND_COLOUR, "width": 8})] if has_bands else [])]


def _path(run: pd.DataFrame, size: int, n_sizes: int) -> go.Scatter:
    """Draw one training. run: its snapshots by step; size: position of its size among n_sizes."""
    import plotly.graph_objects as go

    colour = colorscale.interpolate_colour(size, n_sizes)
    is_end = run["is_final"].astype(bool).tolist()
    symbols = ["circle-open" if at == 0 and not end else "circle" for at, end in enumerate(is_end)]
    sizes = [END if at == 0 or end else BETWEEN for at, end in enumerate(is_end)]
    return go.Scatter(
        x=run["isotropy"].tolist(),
        y=run["nmse"].tolist(),
        mode="lines+markers",
        name=escape(run["run"].iloc[0]),
        showlegend=False,
        line={"color": colorscale.set_opacity(colour, 0.7), "width": 1.5, "dash": DASHES[size % len(DASHES)]},
        # Plotly's default opacity of dots with several sizes is 0.7.
        marker={
            "symbol": symbols,
            "size": sizes,
            "opacity": 1,
            "color": colour,
            "line": {"width": 1.5, "color": colour},
        },
        customdata=[
            [escape(row["run"]), int(row["step"]), _format_loss(row["validation_loss"]), int(row["n_datasets"])]
            for row in run.to_dict("records")
        ],
        hovertemplate="<b>%{customdata[0]}</b>, step %{customdata[1]}<br>isotropy %{x:.3g}, NMSE %{y:.3g}"
        "<br>validation loss %{customdata[2]}<br>medians over %{customdata[3]} data sets<extra></extra>",
    )


def _format_loss(loss: float | None) -> str:
    return f"{loss:.4g}" if loss is not None and is_number(loss) else "unknown"


def _path_keys(sizes: Sequence[str]) -> list[go.Scatter]:
    """Return a legend entry per size, and those of the dots."""
    keys = []
    for position, size in enumerate(sizes):
        colour = colorscale.interpolate_colour(position, len(sizes))
        line = {"color": colour, "width": 1.5, "dash": DASHES[position % len(DASHES)]}
        keys.append(grid.draw_key(escape(size), mode="lines", line=line))
    grey = {"size": END, "color": colorscale.GREY, "line": {"width": 1.5, "color": colorscale.GREY}}
    dots = {"first snapshot": "circle-open", "end of training": "circle"}
    return [*keys, *(grid.draw_key(name, mode="markers", marker={**grey, "symbol": symbol}) for name, symbol in
                     dots.items())]  # fmt: skip


def _isotropy_range(values: pd.Series) -> dict[str, Any]:
    """Return limits and ticks of a panel's horizontal axis."""
    low, high = float(values.min()), float(values.max())
    room = max(0.08 * (high - low), 0.02 * max(abs(low), abs(high)), 1e-4)
    ticks = grid.choose_round_ticks(low - room, high + room, 3)
    texts = [f"{tick + 0:g}".replace("-", "−") for tick in ticks]
    return {"range": [low - room, high + room], "tickvals": ticks, "ticktext": texts}


def _nmse_axis(values: pd.Series) -> dict[str, Any]:
    """Return the vertical axis of all panels, logarithmic, with three labels or more."""
    low, high = math.log10(float(values.min())), math.log10(float(values.max()))
    room = max(0.08 * (high - low), 0.03)
    limits = round(low - room, 3), round(high + room, 3)
    axis = grid.make_fixed_log_axis("median NMSE", limits)
    if len(axis["tickvals"]) >= 3:
        return axis
    return grid.make_fixed_log_axis("median NMSE", limits, grid.choose_round_ticks(10 ** limits[0], 10 ** limits[1], 5))

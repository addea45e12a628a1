"""Dot plot of models pretrained with narrow heads: seeds, their mean with its interval, and printed numbers.

Printed values come from Yu et al. 2026, Fig. 7 and Tables 3 and 4.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tsfmscope.report import colorscale
from tsfmscope.report.charts import grid
from tsfmscope.report.charts.figures import COLOURS, apply_style, escape

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

# Schedules of head widths, in the order that assigns colours.
SCHEDULES = ("flow", "flat")
# Quantities of the panels. The paper's Fig. 7 has two scores and does not tell which is WQL.
SCORES, UNNAMED = ("WQL", "MASE"), "score "
UNNAMED_TITLE = "printed, WQL or MASE"
# Height of a row, shift of its seeds below its mean in rows, pixels of a character of a row's name.
ROW, BELOW, CHARACTER = 24, 0.27, 6.6
MEAN, SEED, PAIR, PRINTED = "mean, 95 % interval", "one seed", "same seed", "printed in the paper"
RATIO = "ratio to the dense model (log)"


class Row(NamedTuple):
    """One line of models, or one printed number with its size. key: identifies the rows of the frame."""

    text: str
    is_printed: bool
    key: tuple[Any, ...]


def draw_pretrained(frame: pd.DataFrame, intervals: pd.DataFrame) -> go.Figure:
    """Draw scores relative to the dense model of the same seed, one panel per score.

    frame: columns of `plots.pretrained.COLUMNS`. intervals: columns of `plots.pretrained.INTERVALS`.

    Open circles are seeds, diamonds their geometric means, with 95 % intervals where the tests have them. Thin
    lines join seeds of models that differ in the schedule only. Printed numbers are grey, in rows of their own.
    """
    import plotly.graph_objects as go

    ours = join_intervals(frame, intervals)
    printed = frame[frame["whose"] == "published"]
    rows = list_rows(ours, printed)
    unnamed = printed["quantity"].str.startswith(UNNAMED).any()
    panels = [name for name in SCORES if name in set(frame["quantity"])] + [UNNAMED_TITLE] * bool(unnamed)
    figure = go.Figure(_keys(ours, has_printed=len(printed) > 0))
    for position, panel in enumerate(panels):
        where = grid.axis_names(position)
        part = ours[ours["quantity"] == panel]
        printed_rows = printed[
            printed["quantity"].str.startswith(UNNAMED) if panel == UNNAMED_TITLE else printed["quantity"] == panel
        ]
        traces = [grid.draw_guide([1, 1], [-0.6, len(rows) - 0.4], width=1.2), *_pairs(part, rows)]
        for at, row in enumerate(rows):
            traces += _printed(printed_rows, row, at) if row.is_printed else _measured(part, row, at)
        figure.add_traces([trace.update(where) for trace in traces])
    columns = ["value", "ratio", "low", "high"]
    values = np.concatenate([ours[columns].to_numpy(float).ravel(), printed["value"].to_numpy(float)])
    x = _ratio_axis(values[np.isfinite(values) & (values > 0)])
    names = [escape(row.text) for row in rows]
    y = grid.make_axis(
        "", range=[len(rows) - 0.4, -0.6], tickvals=list(range(len(rows))), ticktext=names, showgrid=False
    )
    shape = grid.Shape(columns=len(panels), narrow=1, row=ROW * len(rows) + 8)
    layout = grid.lay_out(panels, x, y, shape)
    layout = grid.change_margins(layout, left=round(20 + CHARACTER * max(map(len, names), default=0)))
    return apply_style(figure).update_layout(**layout)


def join_intervals(frame: pd.DataFrame, intervals: pd.DataFrame) -> pd.DataFrame:
    """Return one row per model and score: its value, the key of its line, and the line's mean and interval.

    Without a test, the mean is the geometric mean of the line's models, without an interval.
    """
    ours = frame[frame["whose"] == "measured"].drop(columns=["schedule"])
    keys = ["model", "quantity"]
    lines = intervals.drop_duplicates("model").drop(columns=["quantity", "n", "ratio", "low", "high"])
    rows = ours.drop(columns=["line"]).merge(lines, on="model")
    rows = rows.merge(intervals[[*keys, "n", "ratio", "low", "high"]], on=keys, how="left")
    rows = rows.assign(log=np.log(rows["value"].astype(float).where(rows["value"] > 0)))
    means = np.exp(rows.groupby(["family", "line", "quantity"])["log"].transform("mean"))
    return rows.assign(ratio=rows["ratio"].astype(float).fillna(means)).drop(columns="log")


def list_rows(ours: pd.DataFrame, printed: pd.DataFrame) -> list[Row]:
    """Return the rows: the largest models first, flow above flat, printed numbers last."""
    several = ours["family"].nunique() > 1
    found = ours.drop_duplicates(["family", "line"]).sort_values(
        ["size", "schedule", "line"], ascending=[False, False, True]
    )
    rows = [
        Row(
            f"{f'{row.family}: ' if several else ''}{name_line(row)}, size {row.size_:.2g}",
            False,
            (row.family, row.line),
        )
        for row in found.rename(columns={"size": "size_"}).itertuples()
    ]
    printed_rows = printed.drop_duplicates(["line", "size"]).sort_values(
        ["size", "schedule", "line"], ascending=[False, False, True]
    )
    return rows + [
        Row(f"paper: {line.removeprefix('printed, ')}, size {size:.2g}", True, (line, size))
        for line, size in zip(printed_rows["line"], printed_rows["size"], strict=True)
    ]


def name_line(row: Any) -> str:
    """Return what tells a line of models from others: schedule, reused embedding, shared factors, attention."""
    parts = [
        str(row.schedule),
        "embedding reused" if row.is_reused else "",
        "factors shared by heads" if row.is_shared else "",
        f"{row.kinds}-attention alone" if isinstance(row.kinds, str) else "",
    ]
    return ", ".join(filter(None, parts))


def _measured(part: pd.DataFrame, row: Row, at: int) -> list[go.Scatter]:
    import plotly.graph_objects as go

    own = part[(part["family"] == row.key[0]) & (part["line"] == row.key[1])]
    if own.empty:
        return []
    first = own.iloc[0]
    colour = _colour(str(first["schedule"]))
    traces = []
    if np.isfinite(float(first["low"])):
        traces.append(grid.draw_guide([float(first["low"]), float(first["high"])], [at, at], width=2.4, color=colour))
        span = f"<br>95 % interval {first['low']:.3g} to {first['high']:.3g}, n = {int(first['n'])}"
    else:
        span = ""
    if len(own) > 1:
        marker = {"color": colour, "symbol": "circle-open", "size": 7, "line": {"width": 1.2, "color": colour}}
        traces.append(
            go.Scatter(
                x=own["value"].tolist(), y=[at + BELOW] * len(own), mode="markers", name=SEED, showlegend=False,
                marker=marker, customdata=[escape(name) for name in own["model"]],
                hovertemplate="%{customdata}<br>%{x:.3g}<extra></extra>",
            )
        )  # fmt: skip
    traces.append(
        go.Scatter(
            x=[float(first["ratio"])], y=[at], mode="markers", name=MEAN, showlegend=False,
            marker={"color": colour, "symbol": "diamond", "size": 10},
            hovertemplate=f"{escape(row.text)}<br>%{{x:.3g}}{span}<extra></extra>",
        )
    )  # fmt: skip
    return traces


def _printed(part: pd.DataFrame, row: Row, at: int) -> list[go.Scatter]:
    import plotly.graph_objects as go

    own = part[(part["line"] == row.key[0]) & (part["size"] == row.key[1])]
    marker = {"color": colorscale.GREY, "symbol": "square", "size": 8}
    return [
        go.Scatter(
            x=own["value"].tolist(), y=[at] * len(own), mode="markers", name=PRINTED, showlegend=False, marker=marker,
            hovertemplate=f"{escape(row.text)}<br>%{{x:.3g}}<extra></extra>",
        )
    ]  # fmt: skip


def _pairs(part: pd.DataFrame, rows: Sequence[Row]) -> list[go.Scatter]:
    """Draw lines between the seeds of two neighbouring rows that differ in the schedule only.

    Lines of a single model have no seeds to join.
    """
    x: list[float | None] = []
    y: list[float | None] = []
    for at in range(len(rows) - 1):
        first, second = (
            part[(part["family"] == row.key[0]) & (part["line"] == row.key[1])] if not row.is_printed else part[:0]
            for row in rows[at : at + 2]
        )
        if min(len(first), len(second)) < 2 or name_line_without_schedule(first) != name_line_without_schedule(second):
            continue
        both = first.merge(second, on="base_model", suffixes=("", "_second"))
        for start, end in zip(both["value"], both["value_second"], strict=True):
            x += [float(start), float(end), None]
            y += [at + BELOW, at + 1 + BELOW, None]
    return [grid.draw_guide(x, y, width=0.8, name=PAIR)] if x else []


def name_line_without_schedule(part: pd.DataFrame) -> tuple[Any, ...]:
    """Return what two lines of models must share to be a pair: size, embedding, factors and attention."""
    row = part.iloc[0]
    kinds = row["kinds"] if isinstance(row["kinds"], str) else None
    return round(float(row["size"]), 2), bool(row["is_reused"]), bool(row["is_shared"]), kinds


def _keys(ours: pd.DataFrame, *, has_printed: bool) -> list[go.Scatter]:
    """Return the entries of the legend."""
    grey = colorscale.GREY
    line, diamond = {"width": 2.4, "color": grey}, {"symbol": "diamond", "color": grey}
    out = [grid.draw_key(MEAN, mode="lines+markers", line=line, marker=diamond)]
    if ours.groupby(["family", "line"])["model"].nunique().gt(1).any():
        out.append(grid.draw_key(SEED, mode="markers", marker={"symbol": "circle-open", "color": grey, "size": 7}))
        if len(_pairs(ours[ours["quantity"] == ours["quantity"].iloc[0]], list_rows(ours, ours[:0]))):
            out.append(grid.draw_key(PAIR, mode="lines", line={"width": 0.8, "color": grey}))
    if has_printed:
        out.append(grid.draw_key(PRINTED, mode="markers", marker={"symbol": "square", "color": grey, "size": 8}))
    return out


def _ratio_axis(values: np.ndarray) -> dict[str, Any]:
    """Return a logarithmic axis around 1 with round ticks."""
    low, high = min(0.9, float(values.min(initial=1.0))), max(1.1, float(values.max(initial=1.0)))
    ends = [round(math.log10(low) - 0.02, 3), round(math.log10(high) + 0.02, 3)]
    ticks = grid.choose_ratio_ticks(low, high)
    return grid.make_axis(RATIO, type="log", range=ends, tickvals=ticks, ticktext=[f"{at:g}" for at in ticks])


def _colour(schedule: str) -> str:
    return COLOURS[SCHEDULES.index(schedule) if schedule in SCHEDULES else len(SCHEDULES)]

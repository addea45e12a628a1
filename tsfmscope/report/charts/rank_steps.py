"""Figure of the rank of layer inputs by depth, one line per snapshot of a population of trainings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tsfmscope.report import colorscale
from tsfmscope.report.charts import grid
from tsfmscope.report.charts.figures import DASHES, apply_style, escape
from tsfmscope.report.charts.growth import order_stacks
from tsfmscope.report.charts.population import PANELS, list_families

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

# Largest number of steps that are drawn, one line each.
STEPS = 10
# Widths of the lines of the first and of the last step, in pixels.
THIN, THICK = 1.2, 3.2
# Dashes of `figures.DASHES` in words.
DASH_NAMES = ("solid", "dashed", "dotted", "dash-dotted")
MEANS = ("family", "stack", "step", "depth", "share", "n")


def average_shares(frame: pd.DataFrame) -> pd.DataFrame:
    """Average the share of the full rank over the trainings of each family, by stack, step and depth.

    frame: family, run, step, stack, depth, share of one tolerance; no value is missing.

    The trainings' stacks can have different numbers of layers. The means stand at every depth at which one of the
    trainings has a layer; the others are interpolated linearly between their layers. A depth has no row if it lies
    outside the layers of a training.
    Returns the columns MEANS; n is the number of trainings.
    """
    import pandas as pd

    rows = []
    for (family, stack), part in frame.groupby(["family", "stack"], sort=True):
        depths = np.unique(part["depth"].to_numpy(dtype=float))
        for step, snapshots in part.sort_values("depth").groupby("step", sort=True):
            lines = [
                np.interp(depths, line["depth"], line["share"], left=np.nan, right=np.nan)
                for _, line in snapshots.groupby("run", sort=True)
            ]
            means = np.mean(lines, axis=0)
            for depth, mean in zip(depths.tolist(), means.tolist(), strict=True):
                if np.isfinite(mean):
                    rows.append((family, stack, step, depth, mean, len(lines)))
    return pd.DataFrame(rows, columns=list(MEANS))


def draw_steps(means: pd.DataFrame) -> go.Figure:
    """Draw the mean share of the full rank against depth: one panel per family, one line per step and stack.

    means: columns MEANS, from `average_shares`. At most PANELS families and STEPS steps are drawn. The line of a later
    step is thicker. Where a family has several stacks, the second one is dashed.
    """
    import plotly.graph_objects as go

    families, steps = list_families(means)[:PANELS], select_steps(means)
    figure = go.Figure(_keys(steps))
    titles, y_axes = [], {}
    for position, family in enumerate(families):
        part, axes = means[(means["family"] == family) & means["step"].isin(steps)], grid.axis_names(position)
        stacks = order_stacks(part)
        for _, line in part.groupby(["step", "stack"], sort=True):
            step, stack = int(line["step"].iloc[0]), str(line["stack"].iloc[0])
            dash = DASHES[stacks.index(stack) % len(DASHES)]
            figure.add_trace(_line(line, _style(steps.index(step), len(steps)), dash).update(axes))
        titles.append(f"{family}\n{_name_stacks(stacks)}")
        y_axes[axes["yaxis"].replace("y", "yaxis")] = _percent_range(float(part["share"].max()))
    columns = len(families) if len(families) <= 3 else 2 if len(families) == 4 else 4
    shape = grid.Shape(columns=columns, narrow=2, row=170, shared=False)
    x_axis = grid.make_axis("depth", range=[-0.04, 1.04], tickvals=[0, 0.5, 1], ticktext=["0", "½", "1"])
    layout = grid.lay_out(titles, x_axis, grid.make_axis("rank, % of the full rank"), shape)
    return apply_style(figure).update_layout(**grid.change_axes(layout, y_axes))


def select_steps(means: pd.DataFrame) -> list[int]:
    """Return at most STEPS steps, evenly spaced in the list of all, with the first and the last one."""
    steps = sorted(int(step) for step in means["step"].unique())
    indices = np.linspace(0, len(steps) - 1, min(STEPS, len(steps))).round().astype(int)
    return [steps[index] for index in indices]


def _name_stacks(stacks: Sequence[str]) -> str:
    """Return the stacks of a panel with their dashes, such as `encoder; dashed: decoder`."""
    dashes = [f"{DASH_NAMES[position % len(DASHES)]}: " for position in range(len(stacks))]
    return "; ".join(f"{dash if at else ''}{name}" for at, (dash, name) in enumerate(zip(dashes, stacks, strict=True)))


def _line(line: pd.DataFrame, style: dict[str, Any], dash: str) -> go.Scatter:
    """Draw the means of one family, stack and step. style: colour and width."""
    import plotly.graph_objects as go

    family, stack, step, n = (line[name].iloc[0] for name in ("family", "stack", "step", "n"))
    runs = f"{int(n)} training{'' if n == 1 else 's'}"
    text = f"<b>{escape(family)}</b>, {escape(stack)}, step {int(step):,}<br>mean over {runs}"
    return go.Scatter(
        x=line["depth"].tolist(),
        y=(100 * line["share"]).tolist(),
        mode="lines",
        name=f"step {int(step):,}",
        showlegend=False,
        line={**style, "dash": dash},
        customdata=[[text]] * len(line),
        hovertemplate="%{customdata[0]}<br>depth %{x:.2f}: %{y:.3g} % of the full rank<extra></extra>",
    )


def _style(position: int, count: int) -> dict[str, Any]:
    """Return colour and width of the line of step `position` (from 0) of `count` steps."""
    share = position / (count - 1) if count > 1 else 1.0
    return {
        "color": colorscale.interpolate_colour(position, count),
        "width": round(THIN + share * (THICK - THIN), 2),
    }


def _keys(steps: Sequence[int]) -> list[go.Scatter]:
    """Return a legend entry per step."""
    return [
        grid.draw_key(f"{'' if position else 'step '}{step:,}", mode="lines", line=_style(position, len(steps)))
        for position, step in enumerate(steps)
    ]


def _percent_range(largest: float) -> dict[str, Any]:
    """Return limits and ticks of a panel's vertical axis in percent. largest: the largest share."""
    end = 100 * max(largest, 1e-4) * 1.06
    ticks = grid.choose_round_ticks(0, end, 5)
    return {"range": [0, end], "tickvals": ticks, "ticktext": [f"{tick:g}" for tick in ticks]}

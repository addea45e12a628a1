"""Figure of the rank of layer inputs by depth, one line per snapshot of a population of trainings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import altair as alt
import numpy as np

from tsfmscope.report.charts import style
from tsfmscope.report.charts.growth import order_stacks
from tsfmscope.report.charts.population import PANELS, list_families
from tsfmscope.report.charts.style import DASH_NAMES, DASHES, Chart

if TYPE_CHECKING:
    import pandas as pd

# Largest number of steps that are drawn, one line each.
STEPS = 10
# Widths of the lines of the first and of the last step, in pixels.
THIN, THICK = 1.2, 3.2
MEANS = ("family", "stack", "step", "depth", "share", "n")
HEIGHT = 170


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


def draw_steps(means: pd.DataFrame) -> Chart:
    """Draw the mean share of the full rank against depth: one panel per family, one line per step and stack.

    means: columns MEANS, from `average_shares`. At most PANELS families and STEPS steps are drawn. The line of a later
    step is thicker. Where a family has several stacks, the second one is dashed.
    """
    families, steps = list_families(means)[:PANELS], select_steps(means)
    texts = [
        f"{row.family}, {row.stack}, step {row.step:,}\nmean over {row.n} training{'' if row.n == 1 else 's'}"
        for row in style.each_row(means)
    ]
    rows = means.assign(percent=100 * means["share"], tip=texts)
    widths = dict(zip(steps, np.linspace(THIN, THICK, len(steps)).round(2).tolist(), strict=True))
    columns, panels = style.choose_columns(len(families)), []
    for family in families:
        part = rows[(rows["family"] == family) & rows["step"].isin(steps)]
        stacks = order_stacks(part)
        dashes = {stack: DASHES[position % len(DASHES)] for position, stack in enumerate(stacks)}
        line = alt.Chart(part).mark_line().encode(
            x=alt.X("depth:Q", title="depth", axis=style.name_ticks({0: "0", 0.5: "½", 1: "1"})),
            y=alt.Y("percent:Q", title="rank, % of the full rank", scale=style.from_zero(part["percent"])),
            stroke=style.stroke("step", style.order_colours(steps), "step"),
            strokeWidth=alt.StrokeWidth("step:N", scale=style.map_values(widths), legend=None),
            strokeDash=alt.StrokeDash("dash:N", scale=None),
            detail="stack:N",
            **style.tip(),
        )  # fmt: skip
        line.data = part.assign(dash=part["stack"].map(dashes))
        panels.append(style.name_panel(line, f"{family}\n{_name_stacks(stacks)}", columns, HEIGHT))
    return style.arrange(panels, columns)


def select_steps(means: pd.DataFrame) -> list[int]:
    """Return at most STEPS steps, evenly spaced in the list of all, with the first and the last one."""
    steps = sorted(int(step) for step in means["step"].unique())
    indices = np.linspace(0, len(steps) - 1, min(STEPS, len(steps))).round().astype(int)
    return [steps[index] for index in indices]


def _name_stacks(stacks: Sequence[str]) -> str:
    """Return the stacks of a panel with their dashes, such as `encoder; dashed: decoder`."""
    dashes = [f"{DASH_NAMES[position % len(DASHES)]}: " for position in range(len(stacks))]
    return "; ".join(f"{dash if at else ''}{name}" for at, (dash, name) in enumerate(zip(dashes, stacks, strict=True)))

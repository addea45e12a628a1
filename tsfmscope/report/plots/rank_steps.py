"""Rank of layer inputs by depth at each snapshot of a population of trainings."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import altair as alt
import numpy as np

from tsfmscope.report import style
from tsfmscope.report.page.sections import Figure
from tsfmscope.report.plots import Plot
from tsfmscope.report.plots.growth import order_stacks
from tsfmscope.report.plots.population import PANELS, describe_limit, list_families
from tsfmscope.report.style import DASH_NAMES, DASHES, Chart, format_power
from tsfmscope.report.tables import StudyTables

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = ("family", "size", "run", "step", "stack", "depth", "epsilon", "below_noise_floor", "share", "n")
# Columns that name the line of one snapshot: the ranks of one stack by depth.
LINE = ["family", "run", "step", "stack"]
# Largest number of steps that are drawn, one line each.
STEPS = 10
# Widths of the lines of the first and of the last step, in pixels.
THIN, THICK = 1.2, 3.2
MEANS = ("family", "stack", "step", "depth", "share", "n")
HEIGHT = 170


def draw(study: StudyTables, models: Sequence[str]) -> Iterator[Figure]:
    """Draw one figure per tolerance, the larger tolerance first."""
    frame = study.rows("rank_steps", COLUMNS)
    for epsilon in sorted(frame["epsilon"].unique().tolist(), reverse=True):
        rows = frame[frame["epsilon"] == epsilon]
        complete = select_complete(rows)
        if complete.empty:
            continue
        means = average_shares(complete)
        power = format_power(np.log10(epsilon))
        words = f"Line charts of the rank of layer inputs by depth at tolerance {power}, one panel per family, one "
        words += f"line per training step. Mean rank at the end of the stack, % of the full rank: {_list_ends(means)}."
        caption = _describe(complete, means, count_incomplete(rows, complete))
        yield Figure("rank_steps", draw_steps(means), words, caption, f"Tolerance {power}")


def select_complete(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of snapshots whose stack has a rank in every layer and on every data set.

    rows: COLUMNS of one tolerance. The ranks of a snapshot are complete if no other snapshot of its training has more.
    Incomplete ones are left out as a whole: if the mean at one depth were over other trainings than at the next, it
    could rise or fall where no training does.
    """
    has_rank = np.isfinite(rows[["depth", "share"]].to_numpy(dtype=float)).all(axis=1)
    counted = rows.assign(n_ranks=rows["n"].where(has_rank, 0))
    n_ranks = counted.groupby(LINE)["n_ranks"].transform("sum")
    n_expected = rows.groupby(LINE)["n"].transform("sum").groupby([rows["run"], rows["stack"]]).transform("max")
    complete: pd.DataFrame = rows[n_ranks == n_expected]
    return complete


def count_incomplete(rows: pd.DataFrame, complete: pd.DataFrame) -> int:
    """Return the number of snapshots of which a stack is left out, or has no rows.

    A snapshot is expected for every training and every step of its family.
    """
    shown = set(complete[LINE].itertuples(index=False, name=None))
    incomplete = set()
    for family, part in rows.groupby("family"):
        cells = itertools.product(*(part[name].unique() for name in LINE[1:]))
        incomplete |= {(run, step) for run, step, stack in cells if (family, run, step, stack) not in shown}
    return len(incomplete)


def _list_ends(means: pd.DataFrame) -> str:
    """Return the mean rank at the largest depth in the first and the last step, by family and stack."""
    texts = []
    for (family, stack), part in means.groupby(["family", "stack"], sort=True):
        ends = part[part["depth"] == part["depth"].max()].sort_values("step")
        (first, last), (low, high) = ends["step"].iloc[[0, -1]], 100 * ends["share"].iloc[[0, -1]]
        texts.append(f"{family} {stack} {_format(low)} at step {int(first):,}, {_format(high)} at step {int(last):,}")
    return "; ".join(texts)


def _format(percent: float) -> str:
    return f"{percent:.0f}" if percent >= 10 else f"{percent:.1f}"


def _describe(rows: pd.DataFrame, means: pd.DataFrame, n_incomplete: int) -> str:
    """Return the caption of one tolerance. rows: those that are averaged; n_incomplete: snapshots left out."""
    trainings = rows.groupby("family")["run"].nunique()
    sizes = int(rows.groupby("family")["size"].nunique().max())
    over = f" of up to {sizes} sizes" if sizes > 1 else ""
    parts = [
        "A line is one snapshot step: the mean over the trainings of a family "
        f"({style.format_range(trainings)}{over}), from the input of the first layer (depth 0) to the output of the "
        "last (depth 1). Between two layers of a training the share is interpolated. Thicker lines are later steps. "
        "Vertical axes differ between panels."
    ]
    parts += describe_limit(PANELS, rows["family"].nunique(), "families")
    parts += describe_limit(STEPS, means["step"].nunique(), "steps")
    if rows["below_noise_floor"].any():
        parts.append("In some layers the tolerance is below the rounding error; the CSV marks them.")
    if n_incomplete:
        noun, verb = ("snapshot is", "it lacks") if n_incomplete == 1 else ("snapshots are", "they lack")
        parts.append(f"{n_incomplete} {noun} left out because {verb} a rank in a layer or on a data set.")
    return " ".join(parts)


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
    families, steps = list_families(means)[:PANELS], style.pick_evenly(sorted(set(means["step"].astype(int))), STEPS)
    texts = [
        f"{row.family}, {row.stack}, step {row.step:,}\nmean over {row.n} training{'' if row.n == 1 else 's'}"
        for row in style.iterate_rows(means)
    ]
    rows = means.assign(percent=100 * means["share"], tip=texts)
    widths = dict(zip(steps, np.linspace(THIN, THICK, len(steps)).round(2).tolist(), strict=True))
    columns, panels = style.choose_columns(len(families)), []
    for family in families:
        part = rows[(rows["family"] == family) & rows["step"].isin(steps)]
        stacks = order_stacks(part)
        dashes = {stack: DASHES[position % len(DASHES)] for position, stack in enumerate(stacks)}
        line = alt.Chart(part.assign(dash=part["stack"].map(dashes))).mark_line().encode(
            x=alt.X("depth:Q", title="depth", axis=style.name_ticks({0: "0", 0.5: "½", 1: "1"})),
            y=alt.Y("percent:Q", title="rank, % of the full rank", scale=style.scale_from_zero(part["percent"])),
            stroke=style.encode_stroke("step", style.order_colours(steps), "step"),
            strokeWidth=alt.StrokeWidth("step:N", scale=style.map_values(widths), legend=None),
            strokeDash=alt.StrokeDash("dash:N", scale=None), detail="stack:N", **style.encode_tip(),
        )  # fmt: skip
        # Such as `encoder; dashed: decoder`.
        dashed = [f"{DASH_NAMES[at % len(DASHES)]}: {stacks[at]}" for at in range(1, len(stacks))]
        panels.append(style.name_panel(line, f"{family}\n{'; '.join([*stacks[:1], *dashed])}", columns, HEIGHT))
    return style.arrange_panels(panels, columns)


PLOT = Plot(
    "Numerical rank of the input of each layer, as a share of the full rank, and how it changes in training: the "
    "number of singular values above the tolerance times the largest.",
    {"rank_steps": COLUMNS},
    draw,
    topic="rank",
)

"""Rank of layer inputs by depth at each snapshot of a population of trainings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from tsfmscope.report.charts import population, rank_steps
from tsfmscope.report.charts.style import format_power
from tsfmscope.report.page.sections import Figure
from tsfmscope.report.plot import Plot
from tsfmscope.report.tables import StudyTables

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = ("family", "size", "run", "step", "stack", "depth", "epsilon", "below_noise_floor", "share", "n")
# Columns that name the line of one snapshot: the ranks of one stack by depth.
LINE = ["family", "run", "step", "stack"]


def draw(study: StudyTables, models: Sequence[str]) -> Iterator[Figure]:
    """Draw one figure per tolerance, the larger tolerance first."""
    frame = study.rows("rank_steps", COLUMNS)
    for epsilon in sorted(frame["epsilon"].unique().tolist(), reverse=True):
        rows = frame[frame["epsilon"] == epsilon]
        complete = select_complete(rows)
        if complete.empty:
            continue
        means = rank_steps.average_shares(complete)
        power = format_power(np.log10(epsilon))
        alt = f"Line charts of the rank of layer inputs by depth at tolerance {power}, one panel per family, one line "
        alt += f"per training step. Mean rank at the end of the stack, % of the full rank: {_list_ends(means)}."
        caption = _describe(complete, means, count_incomplete(rows, complete))
        yield Figure("rank_steps", rank_steps.draw_steps(means), alt, caption, f"Tolerance {power}")


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
    incomplete = {
        (run, step)
        for family, part in rows.groupby("family")
        for run in part["run"].unique()
        for step in part["step"].unique()
        for stack in part["stack"].unique()
        if (family, run, step, stack) not in shown
    }
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
    fewest, most = int(trainings.min()), int(trainings.max())
    sizes = int(rows.groupby("family")["size"].nunique().max())
    runs = f"{fewest}" if fewest == most else f"{fewest} to {most}"
    over = f" of up to {sizes} sizes" if sizes > 1 else ""
    parts = [
        "A line is one snapshot step: the mean over the trainings of a family "
        f"({runs}{over}), from the input of the first layer (depth 0) to the output of the last (depth 1). Between two "
        "layers of a training the share is interpolated. Thicker lines are later steps. Vertical axes differ between "
        "panels."
    ]
    parts += population.describe_limit(population.PANELS, rows["family"].nunique(), "families")
    parts += population.describe_limit(rank_steps.STEPS, means["step"].nunique(), "steps")
    if rows["below_noise_floor"].any():
        parts.append("In some layers the tolerance is below the rounding error; the CSV marks them.")
    if n_incomplete:
        noun, verb = ("snapshot is", "it lacks") if n_incomplete == 1 else ("snapshots are", "they lack")
        parts.append(f"{n_incomplete} {noun} left out because {verb} a rank in a layer or on a data set.")
    return " ".join(parts)


PLOT = Plot(
    "Numerical rank of the input of each layer, as a share of the full rank, and how it changes in training: the "
    "number of singular values above the tolerance times the largest.",
    {"rank_steps": COLUMNS},
    draw,
    topic="rank",
)

"""Singular values of query projections at steps of a training."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from tsfmscope.report import style
from tsfmscope.report.page.sections import Figure
from tsfmscope.report.plots import Plot
from tsfmscope.report.plots.histogram import PANELS, WIDTH, draw_lines
from tsfmscope.report.style import Chart
from tsfmscope.report.tables import StudyTables

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = ("model", "step", "stack", "layer", "low", "n")
# Largest number of training steps that are shown, without the finished model.
STEPS = 5


def draw(study: StudyTables, models: Sequence[str]) -> Iterator[Figure]:
    """Draw one figure per model."""
    for model, part in study.rows("snapshots", COLUMNS).groupby("model", sort=True):
        words = f"Cumulative distributions of the singular values of query projections of {model}, one panel per"
        words += " training step, one line per layer."
        steps = part["step"].nunique()
        caption = f"{model}, {part['stack'].iloc[0]}. A line is one layer: the share of its non-zero singular values"
        caption += " that are at most x."
        caption += f" {STEPS} of {steps} snapshots are shown." if steps > STEPS else ""
        yield Figure("snapshots", draw_snapshots(part), words, caption, str(model))


def draw_snapshots(frame: pd.DataFrame) -> Chart:
    """Draw the distribution of the singular values of one model's query projections during training.

    frame: COLUMNS, of one model. There is one panel per training step, at most STEPS
    and then the finished model, and one line per layer. The values are absolute.
    """
    steps = select_steps(frame)
    parts = [frame[frame["step"].isna() if step is None else frame["step"] == step] for step in steps]
    titles = ["trained" if step is None else f"step {step:,}" for step in steps]
    lows = np.concatenate([part["low"].to_numpy(float) for part in parts])
    ends = math.floor(float(np.quantile(lows, 0.02))), math.ceil(float(lows.max()) + WIDTH)
    return draw_lines(parts, titles, min(PANELS, len(steps)), "singular value (log)", ends)


def select_steps(frame: pd.DataFrame) -> list[int | None]:
    """Return at most STEPS steps, evenly spaced, then None for the finished model if the frame contains it."""
    steps = sorted(int(step) for step in frame["step"].dropna().unique())
    return [*style.pick_evenly(steps, STEPS), *([None] if frame["step"].isna().any() else [])]


PLOT = Plot(
    "Cumulative distribution of the singular values of each query projection, one panel per training step. Values that "
    "grow out of the bulk move the upper end of a line to the right.",
    {"snapshots": COLUMNS},
    draw,
    topic="rank",
)

"""Probes of each layer, forecasts without each part, similarity of layers, and factors learned in training."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import altair as alt

from tsfmscope.report import style
from tsfmscope.report.ablation import draw_parts
from tsfmscope.report.page.sections import Figure
from tsfmscope.report.plots import Plot
from tsfmscope.report.probes import COLUMNS, HEIGHT, LEAST, WIDTH, draw_directions, draw_scores
from tsfmscope.report.similarity import draw_similarity
from tsfmscope.report.style import Chart
from tsfmscope.report.tables import StudyTables

if TYPE_CHECKING:
    import pandas as pd

PROBES = (
    "model", "features", "layer", "normed", "name", "directions", "factor", "measure", "value", "low", "high",
    "n_series",
)  # fmt: skip
ABLATION = (
    "model", "condition", "stack", "layer", "kind", "name", "way", "ratio", "upper", "can_go", "n_windows", "units",
)  # fmt: skip
SIMILARITY = ("model", "other", "condition", "a", "b", "cka", "cka_low", "cka_high", "procrustes", "n_datasets")
LEARNING = ("family", "size", "run", "step", "factor", "measure", "value", "low", "high")


def draw(study: StudyTables, models: Sequence[str]) -> Iterator[Figure]:
    """Draw the trainings, or scores of probes by layer and by direction; then ablated parts, and similarities."""
    trainings = study.rows("learning", LEARNING)
    if len(trainings):
        caption = f"Best score of all layers by step of {trainings['run'].nunique()} trainings, one colour per family."
        title = "What a training learns, and when"
        yield Figure("learning", draw_learning(trainings), f"{title}: one panel per factor.", caption, title)
    probes = study.rows("probes", PROBES)
    for key, rows in probes[~probes["model"].isin(trainings["run"])].groupby("model", sort=False):
        model = str(key)
        bars = " Bars: 95 % intervals over series. Untrained states are of random weights of the same shape."
        for figure, part, chart, more in (
            ("layer", rows[rows["directions"].isna()], draw_scores, bars),
            ("number of directions", rows[rows["directions"].notna()], draw_directions, ""),
        ):
            caption = (
                f"{model}: R² or AUC of ridge probes on series that did not fit them, n = "
                f"{style.format_range(part['n_series'])} drawn series. ′: after the final norm.{more}"
            )
            title = f"{model}: probes by {figure}"
            yield Figure("probes", chart(part), f"{title}, one panel per factor.", caption, title)
    for _, rows in study.rows("ablation", ABLATION).groupby(["model", "condition"], sort=False):
        model, condition, n, units = map(str, rows[["model", "condition", "n_windows", "units"]].iloc[0])
        caption = (
            f"{model}, {condition}: WQL without the part over that of the intact model, geometric mean over {units}, "
            f"{n} windows. Frame: the part alone can go, by the certificate. Early exit: the head reads this layer."
        )
        title = f"{model}: forecasts without parts"
        yield Figure("ablation", draw_parts(rows), f"{title}, one column per layer.", caption, title)
    for _, rows in study.rows("similarity", SIMILARITY).groupby(["model", "other", "condition"], sort=False):
        model, other, condition = map(str, rows[["model", "other", "condition"]].iloc[0])
        caption = (
            f"{model} (rows) and {other} (columns), {condition}: debiased linear CKA, mean over "
            f"{style.format_range(rows['n_datasets'])} data sets; 0: unrelated, 1: equal up to rotation and scale."
        )
        named = rows.assign(block="between", model_a=model, model_b=other)
        title = f"{model} and {other}"
        yield Figure("similarity", draw_similarity(named), f"Similarity of layers of {title}.", caption, title)


def draw_learning(rows: pd.DataFrame) -> Chart:
    """Draw the scores of a factor by training step: one panel per factor, one line per run."""
    colours = style.order_colours(sorted(set(rows["family"])))
    panels = []
    for factor, part in rows.groupby("factor", sort=False):
        tips = [f"{row.run}, step {row.step}: {row.value:.2f}" for row in style.iterate_rows(part)]
        x = alt.X("step:Q", **style.make_log_axis("training step", rows["step"]))
        y = alt.Y("value:Q", title=part["measure"].iloc[0], scale=alt.Scale(domain=[LEAST, 1.0], nice=False))
        data = part.assign(tip=tips, value=part["value"].clip(lower=LEAST))
        base = alt.Chart(data).encode(x=x, y=y, stroke=style.encode_stroke("family", colours), detail="run:N")
        points = base.mark_point(size=12).encode(fill=style.encode_fill("family", colours), **style.encode_tip())
        panel = alt.layer(base.mark_line(aria=False, strokeWidth=1.2), points)
        panels.append(panel.properties(width=WIDTH, height=HEIGHT, title=str(factor)))
    return alt.concat(*panels, columns=COLUMNS, spacing=18)


PLOT = Plot(
    "What linear probes read from each layer, what forecasts lose without each part, and how similar the layers of two "
    "models are.",
    {"probes": PROBES, "ablation": ABLATION, "similarity": SIMILARITY, "learning": LEARNING},
    draw,
)

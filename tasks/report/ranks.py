"""Figures of a study of ranks, with their captions, and the results of its tests."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tsfmscope.tasks.report import colorscale, compression
from tsfmscope.tasks.report.page import verdicts
from tsfmscope.tasks.report.page.sections import Figure
from tsfmscope.tasks.report.plots import growth, heatmaps, histograms, spectra
from tsfmscope.tasks.report.plots.figures import COLOURS
from tsfmscope.tasks.report.tables import StudyTables, require

if TYPE_CHECKING:
    import pandas as pd

LEADS = {
    "spectrum": "Singular values of the matrix of embedded tokens, relative to the largest: the faster they fall, the "
    "lower its rank.",
    "plane": "Embedded tokens on the two leading singular directions of all of them, a panel a model.",
    "angles": "The angle between every pair of vectors, from 0 (dark) to a right angle (bright): the brighter, the "
    "higher the rank.",
    "growth": "Numerical rank by layer: how many singular values are above ε of the largest.",
    "trend": "Numerical rank, averaged over layers or data sets, against what a grid of models varies.",
    "constant": "A constant series is one token over and over, a matrix of rank 1; a layer is given special tokens "
    "too.",
    "histogram": "How many singular values of a matrix, relative to the largest, lie where; layers from left to right.",
    "snapshots": "How many singular values of each query projection lie where, during training, from above to below.",
    **compression.LEADS,
}
COLUMNS = {
    "embedded": ("model", "modality", "x", "dataset", "condition", "n_rows", "floor", "j", "ratio"),
    "planes": ("model", "x_axis", "dataset", "condition", "token", "type", "value", "x", "y"),
    "angles": (*heatmaps.PANEL, "x", "dimension", "row", "head", "degrees"),
    "inputs": (
        "model",
        "modality",
        "stack",
        "layer",
        "epsilon",
        "full_rank",
        "below_noise_floor",
        "rank",
        "low",
        "high",
        "n",
    ),
    "trend": ("model", "family", "quantity", "x", "epsilon", "width", "below_noise_floor", "rank", "n"),
    "constant": ("model", "stack", "layer", "tokens", "floor", "j", "ratio"),
    "histogram": ("model", "stack", "matrix", "layer", "low", "n"),
    "snapshots": ("model", "step", "stack", "layer", "low", "n"),
    "tests": ("measure", "grouping", "block", "statistic", "n", "estimate", "low", "high", "p", "reason"),
}
COLUMNS["weights"] = COLUMNS["inputs"]
COLUMNS |= compression.COLUMNS
# Suffix of the measures, by tolerance, that sentences report; the data contain 0.1 and 0.001 too.
TOLD_AT = "@0.01"
# Quantities of the view `rank_tests`, in words.
QUANTITIES = {
    "embedding": "rank of the embedded tokens",
    "attention": "rank of the attention matrices",
    "input slope": "growth of the inputs' rank from the first layer to the last",
    "attention slope": "growth of the attention matrices' rank from the first layer to the last",
    "constant slope": "growth of the inputs' rank for a constant series",
}


def drawn(study: StudyTables, models: Sequence[str]) -> tuple[Figure, ...]:
    """Draw the study's figures: one per answer that has rows, or one per model for histograms and snapshots.

    models: the models of the whole page, which determine the colours.
    """
    found = [
        (f"{study.name}-{name}", draw, require(study.ranks[name], COLUMNS[name]))
        for name, draw in DRAW.items()
        if name in study.ranks and len(study.ranks[name].frame)
    ]
    made = [(source, one) for source, draw, frame in found for one in draw(frame, models)]
    return tuple(Figure(f"{study.name}-{place}", *one, source=source) for place, (source, one) in enumerate(made))


def rows(study: StudyTables) -> int:
    """Return the number of rows behind all figures of the study."""
    return sum(len(answer.frame) for name, answer in study.ranks.items() if name != "tests")


def used(study: StudyTables) -> set[str]:
    """Return the names of the models in the study's rank answers."""
    return {str(name) for answer in study.ranks.values() if "model" in answer.frame for name in answer.frame["model"]}


def contrasts(study: StudyTables) -> list[str]:
    """Return one sentence per test of time series against other data that no claim of the paper covers."""
    if "tests" not in study.ranks:
        return []
    tests = require(study.ranks["tests"], COLUMNS["tests"])
    chosen = tests[(tests["grouping"] == "modality") & tests["measure"].str.endswith(TOLD_AT)]
    claimed = study.published.frame
    told = claimed.loc[claimed["quantity"] == "difference", "measured"].dropna().tolist()
    return [
        _contrast(row)
        for row in chosen.to_dict("records")
        if not any(math.isclose(row["estimate"], one, rel_tol=1e-6) for one in told)
    ]


def by_model(study: StudyTables) -> pd.DataFrame | None:
    """Return a table of the tests of single models at the tolerance of the sentences.

    None if the study has no tests, or if no claim is folded (see `verdicts.folded`): the claims' sentences,
    one per model, then report every test.
    """
    if "tests" not in study.ranks or not verdicts.folded(study.published.frame):
        return None
    tests = require(study.ranks["tests"], COLUMNS["tests"])
    shown = tests[(tests["grouping"] == "model") & tests["measure"].str.endswith(TOLD_AT)]
    quantity = [QUANTITIES.get(_quantity(one), _quantity(one)) for one in shown["measure"]]
    table = shown.assign(model=shown["block"], quantity=quantity).rename(columns={"estimate": "change of the share"})
    columns = ["model", "quantity", "change of the share", "low", "high", "n", "p", "reason"]
    return table[columns].dropna(axis=1, how="all").sort_values(["quantity", "model"]).reset_index(drop=True)


def _contrast(row: Mapping[Any, Any]) -> str:
    what = QUANTITIES.get(_quantity(row["measure"]), _quantity(row["measure"]))
    begin = f"Time series less other data, {what} as a share of the most possible, ε = {colorscale.power(-2)}: "
    if not verdicts.there(row["estimate"]):
        return begin + f"nothing measured{': ' + str(row['reason']) if verdicts.there(row['reason']) else ''}."
    return begin + f"{verdicts.number(row['estimate'])}{verdicts.sure(row)}."


def _quantity(measure: str) -> str:
    return measure.partition("@")[0]


# Figure, alternative text, caption, title.
Made = tuple[Any, str, str, str]


def _spectrum(frame: pd.DataFrame, models: Sequence[str]) -> Iterator[Made]:
    cells = frame.drop_duplicates(["model", "dataset", "condition"])
    alt = f"Line chart of relative singular values of embedded tokens, logarithmic, {len(cells)} lines, one a model"
    alt += " and data set." if spectra.datasets(frame) else "."
    caption = f"Lines end at the floor that rounding leaves. Tokens: {_range(cells['n_rows'])}."
    named = sorted(set(cells["dataset"]))
    caption += f" Data: {', '.join(named)}." if not spectra.datasets(frame) else ""
    yield spectra.spectrum(frame, models), alt, caption, ""


def _planes(frame: pd.DataFrame, models: Sequence[str]) -> Iterator[Made]:
    panels = len(frame.drop_duplicates(["model", "dataset", "condition"]))
    alt = f"Scatter plots of embedded tokens on two singular directions, {panels} panels, {len(frame):,} points."
    caption = (
        "From violet (smallest) to orange (largest): the value that a token stands for, else its id; blue alone where "
        "it has neither."
    )
    yield heatmaps.planes(frame), alt, caption, ""


def _angles(frame: pd.DataFrame, models: Sequence[str]) -> Iterator[Made]:
    parts = heatmaps.panels(frame)
    medians = [f"{heatmaps.title(part).replace(chr(10), ', ')}: {_median(part)}°" for part in parts]
    alt = f"Heat maps of angles between vectors, {len(parts)} panels."
    kinds = set(frame["what"])
    which = "Rows of the query projection of the first block, lines between heads. " if "rows" in kinds else ""
    which += "Embedded tokens of one window, in order. " if "tokens" in kinds else ""
    which += "Gaussian: independent random vectors. " if "gaussian" in kinds else ""
    yield heatmaps.angles(frame), alt, f"{which}Median angle between two: {'; '.join(medians)}.", ""


def _inputs(frame: pd.DataFrame, models: Sequence[str]) -> Iterator[Made]:
    n = int(frame["n"].max())
    over = f" Median over {n} data sets, bands: range." if n > 1 else ""
    caption = (
        f"What each layer is given; the last point is what leaves the last.{over} Dotted: the most possible."
        f"{_hollow(frame)}"
    )
    alt = f"Line charts of the numerical rank of inputs by layer, a panel a model: {_names(frame)}."
    yield growth.growth(frame, offset=1), alt, caption, "Inputs of layers"


def _weights(frame: pd.DataFrame, models: Sequence[str]) -> Iterator[Made]:
    alt = f"Line charts of the numerical rank of query projections by layer, a panel a model: {_names(frame)}."
    caption = f"Query projections, whole. Dotted: the most possible.{_hollow(frame)}"
    yield growth.growth(frame, offset=0), alt, caption, "Query projections"


def _trend(frame: pd.DataFrame, models: Sequence[str]) -> Iterator[Made]:
    if not (frame["x"] > 0).any():
        return
    alt = f"Line charts of mean numerical rank against what varies, {frame['quantity'].nunique()} quantities."
    same = (frame["width"] == frame["x"]).groupby(frame["quantity"]).all().any()
    caption = "Dotted: the width, its half, quarter and eighth." if same else ""
    yield growth.trend(frame), alt, (caption + _hollow(frame)).strip(), ""


def _constant(frame: pd.DataFrame, models: Sequence[str]) -> Iterator[Made]:
    alt = "Line charts of relative singular values of every layer's input for a constant series, a line a layer."
    deepest = frame[frame["layer"] == frame["layer"].max()]
    ranks = (deepest[deepest["ratio"] > 1e-2]).groupby(["model", "stack", "tokens"])["j"].max()
    told = [f"{model} {stack}, {spectra.SPECIAL.get(t, t)}: {rank}" for (model, stack, t), rank in ranks.items()]
    caption = (
        f"Values above rounding's floor. Rank at ε = {colorscale.power(-2)} after the last layer: {'; '.join(told)}."
    )
    yield spectra.constant(frame), alt, caption, ""


def _histogram(frame: pd.DataFrame, models: Sequence[str]) -> Iterator[Made]:
    for model, part in frame.groupby("model", sort=True):
        alt = f"Histograms of relative singular values of {model}, a panel a matrix and layer, logarithmic."
        shades = f"Five shades, a decade each, from {colorscale.power(-5)} to 1."
        caption = f"{model}, {part['stack'].iloc[0]}: query projections above, first MLP matrices below. {shades}"
        yield histograms.histogram(part, _colour(str(model), models)), alt, caption, str(model)


def _snapshots(frame: pd.DataFrame, models: Sequence[str]) -> Iterator[Made]:
    for model, part in frame.groupby("model", sort=True):
        alt = f"Histograms of singular values of query projections of {model}, a row a training step, a column a layer."
        caption = f"{model}, {part['stack'].iloc[0]}; of {part['step'].nunique()} snapshots, a few are shown."
        yield histograms.snapshots(part, _colour(str(model), models)), alt, caption, str(model)


DRAW: dict[str, Callable[[Any, Sequence[str]], Iterator[Made]]] = {
    "embedded": _spectrum,
    "planes": _planes,
    "angles": _angles,
    "inputs": _inputs,
    "weights": _weights,
    "trend": _trend,
    "constant": _constant,
    "histogram": _histogram,
    "snapshots": _snapshots,
    **compression.DRAW,
}


def _colour(model: str, models: Sequence[str]) -> str:
    known = [*models, *([] if model in models else [model])]
    return COLOURS[known.index(model) % len(COLOURS)]


def _names(frame: pd.DataFrame) -> str:
    return ", ".join(growth.panel_order(frame))


def _hollow(frame: pd.DataFrame) -> str:
    return " Hollow: below the floor that rounding leaves." if frame["below_noise_floor"].any() else ""


def _range(values: pd.Series) -> str:
    low, high = int(values.min()), int(values.max())
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def _median(part: pd.DataFrame) -> str:
    """Return the median angle between two different vectors in whole degrees, as text; – if there is none."""
    import numpy as np

    field = heatmaps.matrix(part).astype(float)
    apart = field[~np.eye(len(field), dtype=bool)]
    apart = apart[apart <= heatmaps.RIGHT]
    return f"{np.median(apart):.0f}" if apart.size else "–"

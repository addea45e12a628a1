"""`compare`: similarity of the layers of two models on the same windows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from tsfmscope import progress
from tsfmscope.defaults import HELD_OUT
from tsfmscope.errors import DataError
from tsfmscope.files import TABLES, save_as, table_writers
from tsfmscope.functions.arguments import Context, Count, MaxSeries, Seed, checked
from tsfmscope.functions.load import Model, as_model, floor_notes, load, make_case
from tsfmscope.geometry.similarity import compare_layers
from tsfmscope.models.base import Family
from tsfmscope.models.common.capture import even_batches, in_batches, pass_windows
from tsfmscope.models.types import TokenKind, Tokens
from tsfmscope.report import render
from tsfmscope.report.render import apply_style, image_writers, stack_charts
from tsfmscope.series.data_sets import Data, log_left_out, usable_series
from tsfmscope.series.files.options import reading_of
from tsfmscope.series.types import Windows, count_reasons, describe_reasons
from tsfmscope.series.windows import spread_windows

SUFFIXES = (*render.SUFFIXES, *TABLES)
# Reasons why a pair of layers has no value.
NO_CKA = "the states of a layer are constant, or too few rows differ"
ONE_SERIES, NO_GROUP = "one series gives no interval", "without some of the series there is no CKA"
# Number of windows; more series give one each.
WINDOWS = 128
# Largest number of groups of the jackknife; more series are dealt into so many groups.
GROUPS = 32
# Largest number of windows that find where the tokens of a model lie in time.
PROBES = 512
# Decimals of 1 - CKA; further ones are rounding errors.
DECIMALS = 12
MEANING = (
    "CKA: debiased linear CKA of two layers' states (0: unrelated, 1: equal up to rotation and scale), which may be "
    "slightly below 0 or above 1. low, high: 95 % interval, jackknife over series. Procrustes: squared distance after "
    "the best rotation, 0 to 2, not debiased. n′: after the final norm; –: no value, --json has the reason."
)


@dataclass(frozen=True, eq=False)
class Comparison:
    """Similarity of the layers of two models.

    Attributes:
        layers: one row per pair of layers: block ("between", "within a", "within b"), model_a, stack_a, layer_a (0: the
            embedding), normed_a (whether after the final norm), the same of b, cka, cka_low, cka_high, procrustes,
            n_rows, n_series, reason (why a value is missing).
        moved: one row per layer, if both models are of one family and have the same layers, such as a base and its
            fine-tuned or compressed model: stack, layer, normed, moved (1 - CKA of the layer in both models), low and
            high (of its interval), procrustes. None for other models.
        title: models, data and context in words.
        n_windows: number of windows that both models read.
        skipped: reason -> number of series that gave no window.
        notes: sentences on the rows, on steps that a model does not read, and on the unit of the data.
    """

    layers: pd.DataFrame
    moved: pd.DataFrame | None
    title: str
    n_windows: int
    skipped: Mapping[str, int]
    notes: list[str]

    def matrix(self, block: str = "between") -> pd.DataFrame:
        """Return CKA of a block: layers of its first model as rows, of its second as columns."""
        rows = self.layers[self.layers["block"] == block]
        names = {end: name_layers(rows, f"_{end}") for end in "ab"}
        table = rows.assign(**names).pivot(index="a", columns="b", values="cka")
        return table.loc[names["a"].unique(), names["b"].unique()]

    def plot(self) -> Any:
        """Return an Altair chart: heat maps of CKA, and how far each layer moved if both have the same."""
        return apply_style(self._draw())

    def save(self, path: str | Path) -> Path:
        """Write the chart (.png, .svg, .pdf) or the pairs of layers (.csv, .parquet); return the path.

        The file is written completely or not at all. Missing parent folders are made. Raises ValueError for another
        suffix, OSError if the file cannot be written.
        """
        return save_as(path, {**image_writers(self._draw), **table_writers(self.layers)})

    def _draw(self) -> Any:
        from tsfmscope.report.similarity import draw_moved, draw_similarity

        pairs = self.layers.assign(a=name_layers(self.layers, "_a"), b=name_layers(self.layers, "_b"))
        charts = [(self.title, draw_similarity(pairs))]
        if self.moved is not None:
            charts.append(("How far each layer moved", draw_moved(self.moved.assign(name=name_layers(self.moved)))))
        return stack_charts(charts)

    def sentences(self) -> Iterator[str]:
        """Yield sentences on the rows, and on the layers that moved most or are most similar."""
        pairs = self.layers[self.layers["block"] == "between"]
        skipped = "".join(f"; {n} without a window: {reason}" for reason, n in self.skipped.items())
        n_rows, n_series, reason = pairs[["n_rows", "n_series", "reason"]].iloc[0]
        yield f"{n_rows} rows from {self.n_windows} windows of {n_series} series{skipped}."
        yield from (f"{note}." for note in self.notes)
        values = pairs["cka"] if self.moved is None else self.moved["moved"]
        if values.isna().all():
            yield f"No value: {reason}."
        elif self.moved is None:
            best = pairs.loc[[values.idxmax()]]
            names = [f"layer {name_layers(best, f'_{end}').item()} of {best[f'model_{end}'].item()}" for end in "ab"]
            yield f"Most similar: {' and '.join(names)}, CKA {_describe(best[['cka', 'cka_low', 'cka_high']])}."
        else:
            most, beyond = self.moved.loc[[values.idxmax()]], self.moved[self.moved["low"] > 0]
            first = "none" if beyond.empty else f"layer {name_layers(beyond).iloc[0]}"
            interval = _describe(most[["moved", "low", "high"]])
            yield f"Layer {name_layers(most).item()} of the {most['stack'].item()} moved most: 1 − CKA {interval}."
            yield f"First layer whose interval is above 0: {first}."

    def __repr__(self) -> str:
        table = self.matrix() if self.moved is None else self.moved
        return f"{self.title}: {' '.join(self.sentences())}\n{table.to_string()}"


def name_layers(rows: pd.DataFrame, end: str = "") -> pd.Series:
    """Return the numbers of the layers as text, with ′ after the final norm. end: of the columns' names."""
    return rows[f"layer{end}"].astype(str) + np.where(rows[f"normed{end}"], "′", "")


def _describe(row: pd.DataFrame) -> str:
    """Return the value of a single row with its interval, if it has one."""
    value, low, high = row.iloc[0]
    return f"{value:.3g}" + ("" if pd.isna(low) else f" [{low:.3g}, {high:.3g}]")


@checked
def compare(
    a: Model | str | Path,
    b: Model | str | Path,
    data: Data,
    *,
    context: Context = None,
    rows: Count = 1024,
    max_series: MaxSeries = 64,
    seed: Seed = 0,
    **reading: Any,
) -> Comparison:
    """Compare every layer of two models on the same windows: debiased linear CKA and Procrustes distance.

    The layers are those of each model's first stack, which reads the context. Tokens are aligned in time: where the
    patches differ, both models' states are averaged over bins as long as the longer patch. Where a model's tokens are
    not in the order of time, the mean states of each window are compared. Intervals are over series; with one series
    there is none. Both models may be the same.

    Args:
        a: first model, as in `inspect`.
        b: second model, as in `inspect`; it runs on the device of the first.
        data: series, as in `inspect`.
        context: steps of context, 16 to 32,768, and at most as many as both models read; None: 500 of a time series,
            and one whole item of another modality.
        rows: largest number of rows that are compared, a seeded sample of those of 128 windows, or of one window per
            series if there are more.
        max_series: largest number of series, a seeded sample; None: all.
        seed: seed of the samples.
        reading: as in `inspect`.

    Returns:
        A comparison. Its `layers` is a DataFrame with one row per pair of layers and the columns of `compare --json`.

    Raises:
        DataError: the data contain no series, no series is long enough, or no part of a window is read by both models.
        ArgumentError: a name is unknown, an argument is out of range, the models are of different modalities, or they
            read other data. It is a ValueError.
        HealthError: hidden states are not finite.
    """
    progress.show("loading the models")
    first = as_model(a)
    models = (first, b if isinstance(b, Model) else load(b, device=first.device))
    series = usable_series(data, max_series=max_series, seed=seed, reading=reading_of(reading))
    case, _ = (make_case(model, series, context=context, horizon=None, seed=seed) for model in models)
    notes, limit = [], min(model.family.max_context or case.context for model in models)
    if limit < case.context:
        notes.append(f"context {case.context}: a model reads the last {limit} steps, so both read these")
        case = replace(case, context=limit)
    windows, without_window = spread_windows(
        series.loaded.series, context=case.context, horizon=case.horizon, count=max(WINDOWS, len(series.loaded.series)),
        min_context=case.min_context, held_out=HELD_OUT if series.dataset.source == "bundled" else None, seed=seed,
    )  # fmt: skip
    skipped = series.count_left_out(count_reasons(without_window))
    if not len(windows):
        raise DataError(
            f"{series.name}: no window of {case.context} steps of context and a horizon of {case.horizon}: "
            f"{describe_reasons(skipped)}; give longer series"
        )
    pairs, unit = compare_windows(models, windows, rows=rows, seed=seed)
    log_left_out(skipped)
    for model in dict.fromkeys(models):
        n_near = model.family.count_near_floor(windows.context)
        notes += floor_notes(model.family, model.name, series.name, n_near, len(windows))
    is_same = type(models[0].family) is type(models[1].family) and models[0].layers == models[1].layers
    title = f"{models[0].name} and {models[1].name} on {series.name}, context {case.context}"
    moved = _select_moved(pairs) if is_same else None
    return Comparison(pairs, moved, title, len(windows), skipped, [unit, *notes])


def compare_windows(models: Sequence[Model], windows: Windows, *, rows: int, seed: int) -> tuple[pd.DataFrame, str]:
    """Return the rows `layers` of a comparison of two models on these windows, and what one compared row is.

    rows, seed: as in `compare`. Raises DataError if no part of a window is observed by both models.
    """
    tokens, ids, n_bins, unit = _align(models, windows)
    kept = np.intersect1d(ids[0][ids[0] >= 0], ids[1])
    if not len(kept):
        raise DataError(f"{windows.dataset}: no part of a window is observed by both models; name other data")
    generator = np.random.default_rng([seed, 11])
    kept = np.sort(generator.permutation(kept)[:rows])
    layers = {
        (side, model.name, *key): states
        for side, model, own_tokens, own_ids in zip("ab", models, tokens, ids, strict=True)
        for key, states in _average_states(model, own_tokens, own_ids, kept).items()
    }
    groups = np.unique([windows.series[window] for window in kept // n_bins], return_inverse=True)[1]
    n_series = int(groups.max()) + 1
    similarity = compare_layers([*layers.values()], (generator.permutation(n_series) % GROUPS)[groups])
    places = pd.DataFrame([*layers], columns=["side", "model", "stack", "layer", "normed"])
    pairs = places.add_suffix("_a").merge(places.add_suffix("_b"), how="cross")
    blocks = (pairs.pop("side_a") + pairs.pop("side_b")).map({"ab": "between", "aa": "within a", "bb": "within b"})
    pairs.insert(0, "block", blocks)
    values = {name: matrix.ravel() for name, matrix in similarity._asdict().items()}
    pairs = pairs.assign(**values, n_rows=len(kept), n_series=n_series, reason=None)
    # The last reason that holds replaces the others.
    pairs.loc[pairs["cka_low"].isna(), "reason"] = NO_GROUP if n_series > 1 else ONE_SERIES
    pairs.loc[pairs["cka"].isna(), "reason"] = NO_CKA
    return pairs.dropna(subset="block").reset_index(drop=True), f"Each row is {unit}"


def _select_moved(pairs: pd.DataFrame) -> pd.DataFrame:
    """Return how far each layer moved: 1 - CKA with its interval, and the Procrustes distance."""
    is_same = (pairs["layer_a"] == pairs["layer_b"]) & (pairs["normed_a"] == pairs["normed_b"])
    rows = pairs[is_same & (pairs["block"] == "between")].reset_index(drop=True)
    places = rows[["stack_a", "layer_a", "normed_a"]].set_axis(["stack", "layer", "normed"], axis=1)
    # Adding 0 makes -0.0 equal to 0.0.
    moved, high, low = ((1 - rows[name]).round(DECIMALS) + 0.0 for name in ("cka", "cka_low", "cka_high"))
    return places.assign(moved=moved, low=low, high=high, procrustes=rows["procrustes"])


def _align(models: Sequence[Model], windows: Windows) -> tuple[Sequence[Tokens], Sequence[np.ndarray], int, str]:
    """Tokenise the windows for both models, and give tokens that read the same steps the same row.

    Returns the tokens; the row of each token [W, T], window * bins + bin, or -1 for a token without one; the number of
    bins; and the description of a row.
    """
    families = [model.family for model in models]
    tokens = [family.tokenize(windows) for family in families]
    seen = [of_one.kinds[f.stacks[0]] == TokenKind.OBSERVATION for f, of_one in zip(families, tokens, strict=True)]
    ages = [_token_ages(family, windows) for family in families]
    unit = "one token of each model"
    if ages[0] is not None and ages[1] is not None:
        # Steps from one token to the next.
        strides = [np.diff(np.unique(steps), append=windows.context.shape[1])[0] for steps in ages if steps is not None]
        width = max(strides)
        bins = [(ages[0] + strides[0] / 2) // width, (ages[1] + strides[1] / 2) // width]
        if strides[0] != strides[1]:
            unit = f"the mean state of {width} steps"
    elif type(families[0]) is type(families[1]) and np.array_equal(*seen):
        bins = [np.arange(seen[0].shape[1])] * 2
    else:
        bins = [np.zeros(of_one.shape[1]) for of_one in seen]
        unit = "the mean state of a window, since the tokens of a model are not in the order of time"
    n_bins = int(max(of_one.max() for of_one in bins)) + 1
    first = np.arange(len(windows))[:, None] * n_bins
    ids = [np.where(is_seen, first + of_one.astype(int), -1) for is_seen, of_one in zip(seen, bins, strict=True)]
    return tokens, ids, n_bins, unit


def _token_ages(family: Family, windows: Windows) -> np.ndarray | None:
    """Return the steps between the last step that each token of a window reads and the end of the context.

    They are found from windows of which only the last steps are observed. Tokens that read no context have any value.
    Returns None for a family whose tokens are not in the order of time.
    """
    if not family.in_time_order or family.modality != "series":
        return None
    steps = np.arange(windows.context.shape[1])[::-1]
    lengths = np.arange(1, len(steps) + 1, -(-len(steps) // PROBES))
    context = np.where(steps < lengths[:, None], np.sin(steps), np.nan).astype(windows.context.dtype)
    probes = replace(windows.take([0] * len(lengths)), context=context)
    is_seen = family.tokenize(probes).kinds[family.stacks[0]] == TokenKind.OBSERVATION
    # Index of the first window whose steps a token reads.
    first = np.where(is_seen.any(axis=0), is_seen.argmax(axis=0), len(lengths) - 1)
    return np.asarray(lengths[first] - lengths[first].min())


def _average_states(model: Model, tokens: Tokens, ids: np.ndarray, row_ids: np.ndarray) -> dict[Any, np.ndarray]:
    """Return (stack, layer, normed) -> mean states [row, width] of the tokens of each wanted row.

    ids: row of each token [W, T]. row_ids: the wanted rows, ascending. The states of single tokens are in memory for
    one batch of windows at a time.
    """
    stack, batch = model.family.stacks[0], pass_windows(tokens, model.device)
    parts: dict[Any, list[np.ndarray]] = defaultdict(list)
    with in_batches(model.family, batch):
        for part in even_batches(len(tokens), batch):
            progress.show(f"hidden states of {model.name}", part.start, len(tokens))
            positions = np.flatnonzero(np.isin(ids[part], row_ids))
            rows = ids[part].flat[positions]
            order = np.argsort(rows, kind="stable")
            starts, counts = np.unique(rows[order], return_index=True, return_counts=True)[1:]
            windows = tokens.take(range(part.start, part.stop))
            for layer in model.family.hidden_states(windows, {stack: positions}) if len(positions) else ():
                sums = np.add.reduceat(layer.states[order].astype(np.float64), starts)
                parts[stack, layer.layer, layer.normed].append(sums / counts[:, None])
    return {key: np.concatenate(states) for key, states in parts.items()}

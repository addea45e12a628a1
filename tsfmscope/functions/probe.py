"""`probe`: what each layer of a model knows of its series, and how many directions carry it."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import numpy as np
import pandas as pd

from tsfmscope import layer_states, progress
from tsfmscope.compression.export import build_original
from tsfmscope.defaults import CONTEXT, MAX_CONTEXT, Pool
from tsfmscope.errors import ArgumentError, DataError
from tsfmscope.files import TABLES, save_as, table_writers
from tsfmscope.functions.arguments import Bounds, Count, Seed, Share, Tolerance, checked
from tsfmscope.functions.load import Model, as_model, encoder_notes
from tsfmscope.geometry.spectrum import effective_dimension
from tsfmscope.models.base import Forecaster
from tsfmscope.models.types import TokenKind, name_layer
from tsfmscope.ranks.spectrum import numerical_rank
from tsfmscope.report import render
from tsfmscope.report.render import apply_style, image_writers, stack_charts
from tsfmscope.series.data_sets import Data, log_left_out, usable_series
from tsfmscope.series.files.options import reading_of
from tsfmscope.series.synthetic.factors import draw_factors
from tsfmscope.series.types import Series, Windows, count_reasons
from tsfmscope.series.windows import last_contexts
from tsfmscope.statistics import probes

if TYPE_CHECKING:
    from tsfmscope.report.style import Chart

logger = logging.getLogger("tsfmscope")

SUFFIXES = (*render.SUFFIXES, *TABLES)
# Labels of series: a table with one row per series and one column per label.
Labels = pd.DataFrame | pd.Series | Mapping[str, Any] | str | Path
# Steps of the model's own forecast that are a target, and the name of that target.
AHEAD, FORECAST = 8, "forecast"
# Figures of a report: scores by these.
FIGURES = ("layers", "directions")
# Names of the features next to the states of the layers.
STATES, UNTRAINED, WINDOW, SIMPLE, FACTORS = "states", "untrained states", "window", "simple features", "factors"
# Lags of the autocorrelations, and number of peaks of the spectrum, among the simple features.
LAGS, PEAKS = (1, 2, 3, 6, 12, 24, 48, 96), 3
# Fewest drawn series: a quarter is drawn from kernels, whose five classes need five series each.
LEAST_DRAWN = 100
# Labels are smaller than this.
LARGEST_LABEL = 1e100
# Share of what the whole width gives that counts as all of it.
NEARLY_ALL = 0.95


class Target(NamedTuple):
    """Target of a probe: columns [n, k] of the series `rows`; classes: [n], None for numbers."""

    name: str
    rows: np.ndarray
    columns: np.ndarray
    classes: np.ndarray | None = None

    @property
    def measure(self) -> str:
        """Name of the score."""
        return "R²" if self.classes is None else "AUC"


@dataclass(frozen=True, eq=False)
class ProbeReport:
    """Scores of linear probes of every layer, next to those of features that need no model.

    Attributes:
        scores: one row per features, layer and factor: features (states; untrained states: of a model with random
            weights of the same shape; window: the context itself; simple features; factors: the factors themselves),
            stack, layer, normed, width, factor, measure (R² or AUC), value, low, high (95 % interval over series) and
            n_series.
        directions: one row per layer, factor and number of directions: the score of the pooled states' projection on
            the first right singular vectors of the layer's states, which rank(ε) counts; also numerical_rank and
            effective_dimension of the layer, with their epsilon and share.
        title: model, data and condition in words.
        notes: sentences on what was left out.
    """

    scores: pd.DataFrame
    directions: pd.DataFrame
    title: str
    notes: list[str]

    def best_layers(self) -> pd.DataFrame:
        """Return one row per factor: the layer with the best score, and the number of directions that carry it.

        directions: the least number whose score is 95 % of that of all directions (of what is above 1/2, for AUC).
        """
        states = self.scores[self.scores["features"] == STATES]
        best = states.loc[states.groupby("factor", sort=False)["value"].idxmax()].set_index("factor")
        carried = {}
        for factor, row in best.iterrows():
            curve = self.directions[
                (self.directions["factor"] == factor)
                & (self.directions["layer"] == row["layer"])
                & (self.directions["normed"] == row["normed"])
            ]
            chance = 0.5 if row["measure"] == "AUC" else 0.0
            total = curve["value"].iloc[-1] - chance
            enough = curve["value"] - chance >= NEARLY_ALL * total
            is_read = row["value"] > chance and total > 0
            carried[factor] = int(curve["directions"][enough].min()) if is_read else None
        return best.assign(directions=pd.Series(carried, dtype="Int64")).reset_index()

    def sentences(self) -> Iterator[str]:
        """Yield one sentence per factor, and the notes."""
        for row in self.best_layers().to_dict("records"):
            others = self.scores[(self.scores["factor"] == row["factor"]) & (self.scores["features"] != STATES)]
            best = others.groupby("features", sort=False)["value"].max()
            controls = ", ".join(f"{name} {value:.2f}" for name, value in best.items())
            carried = (
                "" if pd.isna(row["directions"]) else f", carried by {row['directions']} of {row['width']} directions"
            )
            yield (
                f"{row['factor']}: {row['measure']} {row['value']:.2f} [{row['low']:.2f}, {row['high']:.2f}] at layer "
                f"{name_layer(row['layer'], normed=row['normed'])}{carried}; {controls}"
            )
        yield from self.notes

    def plot(self, figure: str = "layers") -> Chart:
        """Return an Altair chart with a panel per factor: scores by layer ("layers") or by number of "directions"."""
        if figure not in FIGURES:
            raise ValueError(f"figure: got {figure!r}, expected {' or '.join(FIGURES)}")
        return apply_style(self._draw_figures()[figure])

    def save(self, path: str | Path) -> Path:
        """Write both figures as an image (.png, .svg, .pdf), or the scores (.csv, .parquet).

        The file is written completely or not at all. Raises ValueError for another suffix, OSError if it cannot be
        written.
        """
        return save_as(path, {**image_writers(self._draw), **table_writers(self.scores)})

    def _draw(self) -> Chart:
        figures = self._draw_figures()
        return stack_charts([(f"{self.title}: scores by {figure}", chart) for figure, chart in figures.items()])

    def _draw_figures(self) -> dict[str, Chart]:
        from tsfmscope.report.probes import draw_directions, draw_scores

        scores, curves = (
            table.assign(name=[
                "" if pd.isna(layer) else name_layer(layer, normed=normed)
                for layer, normed in zip(table["layer"], table["normed"], strict=True)
            ])
            for table in (self.scores, self.directions)
        )  # fmt: skip
        return dict(zip(FIGURES, (draw_scores(scores), draw_directions(curves)), strict=True))

    def __repr__(self) -> str:
        return "\n".join((self.title, *self.sentences()))


@checked
def probe(
    model: Model | str | Path,
    data: Data | None = None,
    *,
    labels: Labels | None = None,
    stack: str | None = None,
    pool: Pool = "mean",
    context: Annotated[int, Bounds(64, MAX_CONTEXT)] = CONTEXT,
    max_series: Count = 1024,
    share: Share = 0.8,
    epsilon: Tolerance = 0.01,
    seed: Seed = 0,
    **reading: Any,
) -> ProbeReport:
    """Measure what linear probes read from the pooled states of every layer.

    Without data, series with known factors are drawn: period, phase, season, trend, noise, level shift,
    changepoint, kind of kernel. The model's own forecast is one more factor. A probe is a closed-form ridge
    regression on standardised features. Its penalty is chosen inside the training part, and series that did not fit it
    score it: five folds, divided three times, or once for the scores of directions. Next to the layers stand a model
    with random weights, the window, simple features, and the factors.

    Args:
        model: model, as in `inspect`.
        data: series with labels, as in `inspect`; None: drawn series with known factors.
        labels: labels of the series, a CSV or Parquet file whose first column has the ids of the series; in Python also
            a DataFrame or Series with ids as index, or a dict from id to label. Numbers have R², other labels and
            booleans are classes and have AUC.
        stack: name of a stack; None: the first, which reads the context.
        pool: mean, last or max, over the tokens of observed values.
        context: steps at the end of each series, 64 to 32,768.
        max_series: number of drawn series, or largest number of labelled ones, a seeded sample.
        share: share of the variance in the effective dimension, in (0, 1].
        epsilon: tolerance of the numerical rank, relative to the largest singular value, in [0, 1].
        seed: seed of series, folds, intervals and random weights.
        reading: as in `inspect`.

    Returns:
        A report with the scores of every layer, and of its first directions.

    Raises:
        ArgumentError: an argument is out of range, data have no labels, or the model reads other data. It is a
            ValueError.
        DataError: the data contain no series, too few have a label, or all labels are equal.
        ModelError: no model with random weights can be made of the same shape.
    """
    progress.show("loading the model")
    model = as_model(model)
    family = model.family
    if family.modality != "series":
        raise ArgumentError(f"model: got {model.name}, which reads {family.modality}; name a model of time series")
    stack = model.choose_stack(stack)
    if (data is None) != (labels is None):
        raise ArgumentError("labels: expected data and labels together, or neither; labels name the series of the data")
    notes: list[str] = []
    if data is None or labels is None:
        if max_series < LEAST_DRAWN:
            raise ArgumentError(f"max_series: got {max_series}, expected at least {LEAST_DRAWN} drawn series")
        name, series, factors, classes = "drawn series", *_draw(max_series, context, seed)
    else:
        named = usable_series(data, max_series=None, seed=seed, reading=reading_of(reading), takes_any=True)
        log_left_out(count_reasons(named.loaded.skipped))
        name, (series, table) = named.name, _with_labels(named.loaded.series, read_labels(labels), max_series, seed)
        columns = {str(label): column for label, column in table.items()}
        if FORECAST in columns:
            raise ArgumentError(f"labels: got a label {FORECAST}, which names the model's own forecast; rename it")
        factors = {key: one.to_numpy(np.float64)[:, None] for key, one in columns.items() if _is_number(one)}
        classes = {key: one.to_numpy(object) for key, one in columns.items() if key not in factors}
    windows = last_contexts(series, min(context, max(len(item.values) for item in series)), AHEAD)
    tokens = family.tokenize(windows)
    kept = np.flatnonzero((tokens.kinds[stack] == TokenKind.OBSERVATION).any(axis=1))
    if not len(kept):
        raise ArgumentError(f"stack: got {stack!r}, none of whose tokens is an observed value; name another stack")
    if lost := len(tokens) - len(kept):
        notes.append(f"{lost} series left out: no token stands for an observed value of their last {context} steps")
    windows, tokens = windows.take(kept.tolist()), tokens.take(kept)
    targets = [*_targets({key: values[kept] for key, values in (factors | classes).items()})]
    notes += encoder_notes(family, model.name)
    if isinstance(family, Forecaster) and family.direct_quantiles and family.missing is None:
        targets.append(Target(FORECAST, np.arange(len(kept)), _forecast(family, windows)))
    else:
        notes.append(f"no factor {FORECAST}: {model.name} draws samples of its forecast, or does not forecast")
    if few := [target.name for target in targets if len(target.rows) < family.width]:
        notes.append(f"fewer series than the {family.width} directions of a state: {', '.join(few)}")
    context_values = _standardised(windows.context)
    controls = {WINDOW: context_values, SIMPLE: _simple_features(windows.context, context_values)}
    if data is None:
        known = np.concatenate([target.columns for target in _targets(factors | classes, fill=True)], axis=1)
        controls[FACTORS] = known[kept]
    trained = layer_states.pool_states(
        family, tokens, stack, pool, factors=True, watch=progress.with_rate("hidden states")
    )
    untrained = layer_states.pool_states(
        build_original(family, seed=seed), tokens, stack, pool, watch=progress.with_rate("states of random weights")
    )
    features = [
        *(({"features": STATES} | _layer_columns(stack, layer), layer.vectors) for layer in trained),
        *(({"features": UNTRAINED} | _layer_columns(stack, layer), layer.vectors) for layer in untrained),
        *(({"features": label, "width": values.shape[1]}, values) for label, values in controls.items()),
    ]
    scores, curves, watch = [], [], progress.with_rate("probes")
    for done, (place, vectors) in enumerate(features, start=1):
        scores += [place | row for row in _score(vectors, targets, seed)]
        watch(done, len(features) + len(trained))
    for done, layer in enumerate(trained, start=1):
        assert layer.factor is not None
        directions, values = layer.factor.directions(), layer.factor.singular_values()
        variances = np.square(layer.factor.singular_values(centred=True))
        facts = _layer_columns(stack, layer) | {
            "epsilon": epsilon,
            "numerical_rank": numerical_rank(values, epsilon),
            "share": share,
            "effective_dimension": effective_dimension(variances, share) if variances.any() else None,
        }
        for count in _counts(directions.shape[1]):
            projected = layer.vectors @ directions[:, :count]
            curves += [facts | {"directions": count} | row for row in _score(projected, targets, seed, repeats=1)]
        watch(len(features) + done, len(features) + len(trained))
    frame = pd.DataFrame(scores).astype({"layer": "Int64", "normed": "boolean"})
    title = f"{model.name} on {len(kept)} {name}, context {windows.context.shape[1]}, {stack}, {pool} of its tokens"
    for note in notes:
        logger.warning(note)
    return ProbeReport(frame, pd.DataFrame(curves), title, notes)


def read_labels(labels: Labels) -> pd.DataFrame:
    """Return labels as a table whose index is the id of a series, as text.

    Raises DataError for a file that is no table with two columns, and for an id that occurs twice.
    """
    if isinstance(labels, str | Path):
        path = Path(labels)
        if path.suffix not in TABLES or not path.is_file():
            raise DataError(f"labels: got {path}, expected a CSV or Parquet file")
        try:
            # Ids are text: 07 is not 7.
            is_csv = path.suffix == ".csv"
            table = pd.read_csv(path, converters={0: str}) if is_csv else pd.read_parquet(path)
        # Errors of pyarrow, of pandas and of decoding are ValueErrors.
        except (ValueError, OSError) as error:
            raise DataError(f"labels: {path}: {' '.join(str(error).split())[:200]}") from error
        table = table if isinstance(table.index, pd.RangeIndex) else table.reset_index()
        if table.shape[1] < 2:
            raise DataError(f"labels: {path} has {table.shape[1]} column, expected ids of series and their labels")
        table = table.set_index(table.columns[0])
    elif isinstance(labels, pd.DataFrame):
        table = labels
    else:
        table = pd.Series(labels, name=getattr(labels, "name", None) or "label").to_frame()
    table = table.set_axis(table.index.astype(str)).rename(columns=str).dropna(how="all")
    if table.index.has_duplicates:
        raise DataError(f"labels: {table.index[table.index.duplicated()][0]} occurs twice, expected one row per series")
    return table


def _with_labels(
    series: Sequence[Series], table: pd.DataFrame, most: int, seed: int
) -> tuple[list[Series], pd.DataFrame]:
    """Return at most so many series that have a label, a seeded sample, and their rows of the table."""
    known = _find_labelled([item.series for item in series], table)
    picked = np.sort(np.random.default_rng(seed).permutation(known)[:most])
    kept = [series[index] for index in picked.tolist()]
    return kept, table.loc[[item.series for item in kept]]


def _find_labelled(ids: Sequence[str], table: pd.DataFrame) -> np.ndarray:
    """Return the positions of the series that have a label; DataError if none has one."""
    known = np.flatnonzero([name in table.index for name in ids])
    if not len(known):
        raise DataError(
            f"labels: got ids such as {', '.join(table.index[:3])}, expected ids of the series, such as "
            f"{', '.join(ids[:3])}"
        )
    if len(known) < len(ids):
        logger.warning(f"left out: {len(ids) - len(known)} series: no label")
    return known


def best_layer(
    layers: Sequence[layer_states.PooledLayer], ids: Sequence[str], labels: Labels, *, seed: int
) -> tuple[layer_states.PooledLayer, str]:
    """Return the layer whose pooled states [series, d] predict a label best, and a sentence on it.

    ids: of the series. labels: as in `probe`, with one label. Series without one are not used. Raises the errors of
    `probe` for labels.
    """
    table = read_labels(labels)
    if table.shape[1] != 1:
        raise ArgumentError(f"labels: got {table.shape[1]} columns, expected one label that chooses the layer")
    _find_labelled(ids, table)
    column = table.iloc[:, 0].reindex(list(ids))
    values = column.to_numpy(np.float64)[:, None] if _is_number(table.iloc[:, 0]) else column.to_numpy(object)
    (target,) = _targets({str(table.columns[0]): values})
    rows = [next(iter(_score(layer.vectors, [target], seed))) for layer in layers]
    best = max(range(len(layers)), key=lambda index: float(rows[index]["value"]))
    texts = [
        f"{name_layer(layer.layer, normed=layer.normed)} {row['value']:.2f} [{row['low']:.2f}, {row['high']:.2f}]"
        for layer, row in zip(layers, rows, strict=True)
    ]
    return layers[best], (
        f"layer {texts[best].partition(' ')[0]} predicts {target.name} best: {target.measure} of layer "
        f"{', '.join(texts)} ({len(target.rows)} series)"
    )


def _is_number(column: pd.Series) -> bool:
    return pd.api.types.is_numeric_dtype(column) and not pd.api.types.is_bool_dtype(column)


def _draw(count: int, length: int, seed: int) -> tuple[list[Series], dict[str, np.ndarray], dict[str, np.ndarray]]:
    drawn = draw_factors(count, length, seed=seed)
    series = [Series("factors", f"factors-{row}", values) for row, values in enumerate(drawn.values)]
    return series, drawn.factors, drawn.classes


def _targets(labels: Mapping[str, np.ndarray], *, fill: bool = False) -> Iterator[Target]:
    """Yield the target of each label: numbers [N, k] or classes [N], both missing where a series has none.

    fill: every series is in the target, with the columns of a missing label 0.
    """
    for name, values in labels.items():
        is_known = ~pd.isna(values).reshape(len(values), -1).any(axis=1)
        rows = np.flatnonzero(is_known)
        if values.ndim == 2:
            columns, classes = values[rows], None
            # The squares of larger numbers overflow.
            if not (np.abs(columns) < LARGEST_LABEL).all():
                raise DataError(f"labels: {name}: got {np.abs(columns).max():g}, expected less than {LARGEST_LABEL:g}")
        else:
            classes = values[rows].astype(str)
            columns = probes.one_hot(classes, name)
        if fill:
            columns, rows = _spread(columns, rows, len(values)), np.arange(len(values))
        yield Target(name, rows, columns, classes)


def _spread(columns: np.ndarray, rows: np.ndarray, count: int) -> np.ndarray:
    spread = np.zeros((count, columns.shape[1]))
    spread[rows] = columns
    return spread


def _score(
    vectors: np.ndarray, targets: Sequence[Target], seed: int, repeats: int = probes.REPEATS
) -> Iterator[dict[str, Any]]:
    """Yield the columns of the score of each target. Numbers of the same series are predicted by the same fits."""
    groups: dict[tuple[Any, ...], list[Target]] = {}
    for target in targets:
        key = (target.rows.tobytes(), None if target.classes is None else target.name)
        groups.setdefault(key, []).append(target)
    for group in groups.values():
        rows, classes = group[0].rows, group[0].classes
        columns = np.concatenate([target.columns for target in group], axis=1)
        predicted = probes.predict(vectors[rows], columns, seed=seed, classes=classes, repeats=repeats)
        parts = np.split(predicted, np.cumsum([target.columns.shape[1] for target in group])[:-1], axis=2)
        for target, part in zip(group, parts, strict=True):
            score = (probes.r_squared if classes is None else probes.auc)(part, target.columns, target.name, seed=seed)
            yield {"factor": target.name, "measure": target.measure, **score._asdict(), "n_series": len(rows)}


def _layer_columns(stack: str, layer: layer_states.PooledLayer) -> dict[str, Any]:
    return {"stack": stack, "layer": layer.layer, "normed": layer.normed, "width": layer.vectors.shape[1]}


def _counts(width: int) -> list[int]:
    """Return the powers of two below a width, and the width."""
    return [*(2**power for power in range((width - 1).bit_length())), width]


def _moments(context: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and standard deviation [N, 1] of the observed steps; 1 for the deviation of a constant context."""
    values = context.astype(np.float64)
    spread = np.nanstd(values, axis=1, keepdims=True)
    # A constant deviates from its mean by rounding.
    is_constant = spread <= 1e-7 * np.nanmax(np.abs(values), axis=1, keepdims=True)
    return np.nanmean(values, axis=1, keepdims=True), np.where(is_constant, 1.0, spread)


def _standardised(context: np.ndarray) -> np.ndarray:
    """Return contexts [N, L] with mean 0 and standard deviation 1; missing steps are 0."""
    mean, spread = _moments(context)
    return np.asarray(np.nan_to_num((context - mean) / spread))


def _simple_features(context: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Return level and spread, slope, autocorrelations at LAGS, and the PEAKS largest peaks of the spectrum.

    values: standardised contexts [N, L]. A peak is the logarithm of its period and its share of the power.
    """
    length = values.shape[1]
    mean, spread = _moments(context)
    line = np.linspace(-1, 1, length)
    lagged = [(values[:, lag:] * values[:, : length - lag]).mean(axis=1) for lag in LAGS if lag < length]
    power = np.square(np.abs(np.fft.rfft(values, axis=1)))[:, 1:]
    peaks = np.argsort(-power, axis=1)[:, :PEAKS]
    shares = np.take_along_axis(power, peaks, axis=1) / np.maximum(power.sum(axis=1, keepdims=True), 1e-12)
    return np.concatenate([
        np.arcsinh(mean), np.log(spread), (values @ line)[:, None] / length, np.stack(lagged, axis=1),
        np.log2(length / (peaks + 1)), shares,
    ], axis=1)  # fmt: skip


def _forecast(family: Forecaster, windows: Windows) -> np.ndarray:
    """Return the model's median forecast of AHEAD steps [N, AHEAD], in standard deviations of the context."""
    mean, spread = _moments(windows.context)
    forecast = family.forecast(windows, levels=(0.5,), seeds=range(len(windows)))
    return np.asarray((forecast.median.astype(np.float64) - mean) / spread)

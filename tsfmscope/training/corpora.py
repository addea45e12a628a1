"""Training corpora: mixed series, random series in phases, shards, and other modalities.

The batch of any step can be drawn again from the number of the step alone. A batch has one context length, since
attention costs C^2 and padding short windows to the longest would cost that for all.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import ClassVar, NamedTuple

import numpy as np

from tsfmscope.defaults import HELD_OUT, RANDOM_SOURCES, REAL
from tsfmscope.errors import DataError
from tsfmscope.series import other_modalities
from tsfmscope.series.calendar import Clock, random_clock, start_of, step_dates
from tsfmscope.series.catalog import MODALITIES, Modality, modality
from tsfmscope.series.files.sources import BUNDLED, load_bundled
from tsfmscope.series.synthetic.kernelsynth import draw_many
from tsfmscope.series.synthetic.priors import draw_periodic, draw_priors, draw_weekdays
from tsfmscope.series.synthetic.shards import CORPUS_FILE, tsmixup
from tsfmscope.series.tables import list_values
from tsfmscope.training.options import Phase, Recipe
from tsfmscope.training.real_series import RealWindows

# Key of a mixture that reads the shards in the folder recipe.corpus.
SHARDS = "shards"
# Last part of the seed of the random stream for clocks.
CLOCKS = 1
# Training steps per row group of 1,000 series, which is read once and alone in memory.
GROUP_STEPS = 16
# Share of the windows of random series whose context starts later than the window, as that of a short series does.
SHORTER = 0.25
# A future step further than this from the context's mean, in its standard deviations, is hidden: the loss of
# one such step can be a thousand times that of the whole batch.
FARTHEST = 15.0
# Sources whose shares every recipe's draw of counts includes, also where they are 0.
FIRST_SOURCES = ("priors", "periodic")
# Largest number of steps that a window of random series has before it; it only changes the dates.
EARLIER = 5_000


class BatchShape(NamedTuple):
    """Shape of a training batch: B = steps // (C + horizon) windows of C context steps, at least one.

    contexts: values of C, of which a batch has one. The future has `horizon` steps, of which only the first F are
    shown, with F drawn from `futures`; the others are NaN. An autoregressive model can copy later steps from the step
    before, and would otherwise hardly learn the first step, which it must predict from the context. min_past: smallest
    number of steps before the future.
    """

    steps: int
    contexts: Sequence[int]
    futures: Sequence[int]
    horizon: int
    min_past: int

    @classmethod
    def of(cls, recipe: Recipe) -> BatchShape:
        """Return the shape of the batches of a recipe."""
        futures = recipe.futures or [recipe.horizon]
        return cls(recipe.batch_steps, recipe.contexts, futures, recipe.horizon, recipe.min_past)

    def count(self, context: int) -> int:
        """Return the number of windows of a batch whose contexts have this number of steps."""
        return max(1, self.steps // (context + self.horizon))


class Batch(NamedTuple):
    """Training windows: context [B, C] and future [B, H], NaN where missing.

    clocks: start and frequency of the series of each window. origins: index, in that series, of the window's
    first future step. Both are empty if the windows are not time series.
    """

    context: np.ndarray
    future: np.ndarray
    clocks: Sequence[Clock] = ()
    origins: Sequence[int] = ()

    def dates(self) -> np.ndarray:
        """Return seconds since 1970 [B, C + H]; steps before a series starts have the smallest int64."""
        before, count = self.context.shape[1], self.context.shape[1] + self.future.shape[1]
        first = np.array(self.origins, dtype=np.int64) - before
        seconds = np.empty((len(first), count), dtype=np.int64)
        for freq in {clock.freq for clock in self.clocks}:
            rows = [row for row, clock in enumerate(self.clocks) if clock.freq == freq]
            starts = np.array([self.clocks[row].start for row in rows], dtype="datetime64[ms]")
            seconds[rows] = step_dates(starts, freq, first[rows], count).astype(np.int64)
        return seconds

    def parts(self, *, dated: bool) -> list[np.ndarray]:
        """Return context and future, and their dates for a family that reads dates."""
        return [self.context, self.future, *([self.dates()] if dated else [])]


class Corpus:
    """Pool of KernelSynth series, first parts of bundled series, and TSMixup of both.

    mixture: shares of kernelsynth, tsmixup and bundled, which sum to 1. The published pretraining (Ansari et al. 2024)
    mixes TSMixup and KernelSynth 9:1.
    """

    # Kind of data of the values of a batch.
    modality: ClassVar[Modality] = "series"

    def __init__(self, *, pool: int, length: int, mixture: Mapping[str, float], seed: int) -> None:
        self.shares = [mixture.get(source, 0.0) for source in ("kernelsynth", "tsmixup", "bundled")]
        self.seed = seed
        self.kernelsynth = [series.values for series in draw_many(pool, seed=seed, length=length)]
        bundled = [series for name in BUNDLED for series in load_bundled(name)]
        self.bundled = [series.values[: int(len(series.values) * (1 - HELD_OUT))] for series in bundled]
        self.clocks = [Clock(start_of(series.start), series.freq) for series in bundled]
        self._all = [*self.kernelsynth, *self.bundled]

    def batch(self, step: int, shape: BatchShape) -> Batch:
        """Draw the windows of a step. Bundled series have their own dates, others random dates."""
        rng, clocks = _streams(self.seed, step)
        mixtures = tsmixup(self._all, rng)
        return _cut_windows(lambda: self._series(rng, mixtures, clocks), rng, shape)

    def _series(
        self, rng: np.random.Generator, mixtures: Iterator[np.ndarray], clocks: np.random.Generator
    ) -> tuple[np.ndarray, Clock]:
        source = rng.choice(3, p=self.shares)
        if source == 0:
            values = self.kernelsynth[rng.integers(len(self.kernelsynth))]
            # Half of the draws get a random level, since most real series are not centred, unlike Gaussian draws.
            if rng.random() >= 0.5:
                spread = float(np.nanstd(values)) or 1.0
                values = (values + np.float32(spread * rng.normal(0.0, 5.0))).astype(np.float32)
            return values, random_clock(clocks)
        if source == 1:
            return next(mixtures), random_clock(clocks)
        index = int(rng.integers(len(self.bundled)))
        return self.bundled[index], self.clocks[index]


class PriorsCorpus:
    """Random series (`synthetic.priors`), in phases: plain periodic series first, then rich ones.

    No series is drawn twice. Until step phases[0].until, the mixture, the batch size and the contexts (the last two
    if given) of that phase replace those of the recipe, and so on for the next phases. phases[0].periods, if not
    None, are the only periods of its plain periodic series. real: windows of the source `real`.
    """

    modality: ClassVar[Modality] = "series"

    def __init__(
        self,
        mixture: Mapping[str, float],
        phases: Sequence[Phase],
        seed: int,
        real: RealWindows | None = None,
    ) -> None:
        self.mixture, self.phases, self.seed, self.real = mixture, phases, seed, real

    def batch(self, step: int, shape: BatchShape) -> Batch:
        """Draw the windows of a step. A context has at least shape.min_past steps, some of which may be gaps."""
        rng, clocks = _streams(self.seed, step)
        phase = next((phase for phase in self.phases if step <= phase.until), None)
        mixture = phase.mixture if phase else self.mixture
        if phase:
            contexts = phase.contexts or shape.contexts
            shape = shape._replace(steps=phase.batch_steps or shape.steps, contexts=contexts)
        context, n_shown = (int(rng.choice(np.asarray(lengths))) for lengths in (shape.contexts, shape.futures))
        count, steps = shape.count(context), context + shape.horizon
        # Later sources without a share take no random number, so that they change no batch of older recipes.
        sources = [source for source in (*RANDOM_SOURCES, REAL) if mixture.get(source) or source in FIRST_SOURCES]
        counts = rng.multinomial(count, [mixture.get(source, 0.0) for source in sources])
        draw: dict[str, Callable[[np.random.Generator, int, int], np.ndarray]] = {
            "priors": draw_priors,
            "periodic": partial(draw_periodic, periods=phase.periods if phase else None),
            "weekdays": draw_weekdays,
        }
        if self.real is not None:
            draw[REAL] = partial(self.real.draw, context=context, min_past=shape.min_past)
        values = np.concatenate(
            [draw[source](rng, int(n), steps) for source, n in zip(sources, counts, strict=True) if n]
        )
        values[:, context + n_shown :] = np.nan
        for row in np.flatnonzero(rng.random(count) < SHORTER):
            values[row, : rng.integers(0, max(1, context - shape.min_past))] = np.nan
        before, after = np.ascontiguousarray(values[:, :context]), np.ascontiguousarray(values[:, context:])
        hide_far_steps(before, after)
        origins = rng.integers(context, context + EARLIER, count).tolist()
        return Batch(before, after, [random_clock(clocks) for _ in range(count)], origins)


class StreamedCorpus:
    """Folder of Parquet shards, which `tsfmscope corpus` writes.

    Each row group serves GROUP_STEPS consecutive steps, whose windows are of series drawn from it. Every pass
    over the row groups has a new random order. In a corpus of priors, future steps far from their context are
    hidden, as in `PriorsCorpus`. DataError if the folder contains no shard.
    """

    modality: ClassVar[Modality] = "series"

    def __init__(self, folder: Path, seed: int) -> None:
        import pyarrow.parquet as pq

        self.seed = seed
        paths = _shards(Path(folder))
        self._groups = [(path, group) for path in paths for group in range(pq.read_metadata(path).num_row_groups)]
        # Other corpora keep such steps, so that their trainings stay as they are.
        file = Path(folder) / CORPUS_FILE
        self._hides_far_steps = file.exists() and json.loads(file.read_text()).get("source") == "priors"
        self._loaded: tuple[int, list[np.ndarray]] = (-1, [])

    def batch(self, step: int, shape: BatchShape) -> Batch:
        """Draw the windows of a step. Dates are random, as the series are synthetic."""
        rng, clocks = _streams(self.seed, step)
        series = self._series(step)
        batch = _cut_windows(lambda: (series[rng.integers(len(series))], random_clock(clocks)), rng, shape)
        if self._hides_far_steps:
            hide_far_steps(batch.context, batch.future)
        return batch

    def _series(self, step: int) -> list[np.ndarray]:
        import pyarrow.parquet as pq

        turn, index = divmod(step // GROUP_STEPS, len(self._groups))
        if self._loaded[0] != step // GROUP_STEPS:
            order = np.random.default_rng([self.seed, turn]).permutation(len(self._groups))
            path, group = self._groups[order[index]]
            with pq.ParquetFile(path) as file:
                rows = file.read_row_group(group, columns=["values"], use_threads=False)
            self._loaded = (step // GROUP_STEPS, list_values(rows["values"]))
        return self._loaded[1]


@dataclass(frozen=True)
class ContrastCorpus:
    """Items of another modality. source: text, images or tables."""

    source: str
    seed: int

    @property
    def modality(self) -> Modality:
        """Return the kind of data of the values of a batch."""
        return modality(self.source)

    def batch(self, step: int, shape: BatchShape) -> Batch:
        """Draw the items of a step. Every item is complete, so shape.min_past has no effect.

        ValueError where a context is no whole image or table.
        """
        rng = other_modalities.training_stream(self.seed, step)
        context, n_shown = (int(rng.choice(np.asarray(lengths))) for lengths in (shape.contexts, shape.futures))
        items = _ITEMS[self.source](rng, shape.count(context), context, shape.horizon).astype(np.float32)
        items[:, context + n_shown :] = np.nan
        return Batch(items[:, :context], items[:, context:])


AnyCorpus = Corpus | ContrastCorpus | PriorsCorpus | StreamedCorpus


def recipe_corpus(recipe: Recipe) -> AnyCorpus:
    """Return the corpus of a recipe's mixture: generated time series, shards, or one other modality."""
    mixture = {str(name): share for name, share in recipe.mixture.items()}
    source = next(iter(mixture))
    if source == SHARDS:
        assert recipe.corpus is not None, "a recipe of shards has a corpus"
        return StreamedCorpus(Path(recipe.corpus), recipe.seed)
    if set(mixture) <= {*RANDOM_SOURCES, REAL}:
        phases = [*recipe.phases, Phase(until=recipe.steps, mixture=recipe.mixture)]
        if recipe.then:
            phases.append(recipe.then)
        real = RealWindows(recipe.real) if recipe.real else None
        return PriorsCorpus(mixture, phases, recipe.seed, real)
    if source in MODALITIES:
        return ContrastCorpus(source, recipe.seed)
    return Corpus(pool=recipe.pool, length=recipe.length, mixture=mixture, seed=recipe.seed)


def check_complete(folder: Path) -> None:
    """Raise DataError, with names, if shards are missing or have fewer series than CORPUS_FILE states."""
    import pyarrow.parquet as pq

    spec = json.loads((folder / CORPUS_FILE).read_text())
    counts = {int(path.stem): pq.read_metadata(path).num_rows for path in _shards(folder)}
    firsts = enumerate(range(0, spec["series"], spec["shard"]))
    expected = {number: min(spec["shard"], spec["series"] - first) for number, first in firsts}
    if short := [f"{number:06d}.parquet" for number, count in expected.items() if counts.get(number, 0) < count]:
        raise DataError(
            f"corpus {folder}: got {sum(counts.values())} series, expected {spec['series']} ({CORPUS_FILE}); "
            f"{len(short)} of {len(expected)} shards are missing or short: {', '.join(short[:3])}"
            f"{' ...' if len(short) > 3 else ''}; run the same `tsfmscope corpus` command again to "
            "complete them"
        )


def hide_far_steps(context: np.ndarray, future: np.ndarray) -> None:
    """Hide future steps more than FARTHEST standard deviations from the mean of their context, in place, as NaN.

    Nothing of the future is shown after a context that is constant or has no value, since it has no scale.
    context: [B, C]. future: [B, H].
    """
    observed = ~np.isnan(context)
    count = np.maximum(observed.sum(axis=1, keepdims=True), 1)
    values = np.where(observed, context, 0).astype(np.float64)
    mean = values.sum(axis=1, keepdims=True) / count
    spread = np.sqrt((np.where(observed, context - mean, 0) ** 2).sum(axis=1, keepdims=True) / count)
    has_scale = spread > 1e-4 * np.abs(values).max(axis=1, keepdims=True)
    future[(np.abs(future - mean) > FARTHEST * spread) | ~has_scale] = np.nan


def _streams(seed: int, step: int) -> tuple[np.random.Generator, np.random.Generator]:
    """Return two random streams for a training step: for its windows, and for the clocks of synthetic series.

    With separate streams, the clocks do not change the windows that families without dates are trained on.
    """
    return np.random.default_rng([seed, step]), np.random.default_rng([seed, step, CLOCKS])


def _cut_windows(draw: Callable[[], tuple[np.ndarray, Clock]], rng: np.random.Generator, shape: BatchShape) -> Batch:
    """Cut windows out of series. draw: returns the next series and its clock.

    A window's first future step is at least min(min_past, half the series) steps after the start of its series.
    """
    context = int(rng.choice(np.asarray(shape.contexts)))
    n_shown = int(rng.choice(np.asarray(shape.futures))) if len(shape.futures) > 1 else shape.futures[0]
    before = np.full((shape.count(context), context), np.nan, dtype=np.float32)
    after = np.full((len(before), shape.horizon), np.nan, dtype=np.float32)
    clocks, origins = [], []
    for row in range(len(before)):
        values, clock = draw()
        origin = int(rng.integers(min(shape.min_past, len(values) // 2), len(values)))
        past, future = values[max(0, origin - context) : origin], values[origin : origin + n_shown]
        before[row, context - len(past) :] = past
        after[row, : len(future)] = future
        clocks.append(clock)
        origins.append(origin)
    return Batch(before, after, clocks, origins)


def _shards(folder: Path) -> list[Path]:
    """Return the shards of a corpus, sorted. DataError if there is none."""
    # Files directly in dumps/ belong to the table that lists the shards.
    paths = sorted(folder.glob("dumps/*/[!.]*.parquet"))
    if not paths:
        raise DataError(f"corpus {folder}: got no Parquet shard; make one with `tsfmscope corpus {folder}`")
    return paths


def _text(rng: np.random.Generator, count: int, context: int, horizon: int) -> np.ndarray:
    """Return stretches of the part of the built-in English text that is in no data set, as bytes."""
    text = np.frombuffer(other_modalities.english()[0], np.uint8)
    starts = rng.integers(len(text) - context - horizon + 1, size=count)
    batch: np.ndarray = text[starts[:, None] + np.arange(context + horizon)]
    return batch


def _images(rng: np.random.Generator, count: int, context: int, horizon: int) -> np.ndarray:
    """Return square crops with as many values as the context; ValueError for other lengths or horizons."""
    side = math.isqrt(context // 3)
    if context != 3 * side * side or horizon != 1:
        raise ValueError(f"images: expected contexts of 3 n^2 pixels and horizon 1, got {context} and {horizon}")
    crops = other_modalities.crops(count, side, rng, is_training=True)
    return np.stack([other_modalities.item(crop) for crop in crops])


def _tables(rng: np.random.Generator, count: int, context: int, horizon: int) -> np.ndarray:
    """Return tables with as many cells as the context; ValueError for other lengths or horizons."""
    columns = other_modalities.FEATURES + 1
    if context % columns or horizon != 1:
        raise ValueError(f"tables: expected contexts of {columns} n cells and horizon 1, got {context} and {horizon}")
    tables = (other_modalities.draw_table(rng, context // columns, columns - 1) for _ in range(count))
    return np.stack([other_modalities.item(table) for table in tables])


_ITEMS: Mapping[str, Callable[[np.random.Generator, int, int, int], np.ndarray]] = {
    "text": _text, "images": _images, "tables": _tables,
}  # fmt: skip

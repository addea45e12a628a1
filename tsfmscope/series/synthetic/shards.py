"""Corpus for pretraining in independent shards: series of one source, TSMixup, or a mixture of both.

TSMixup (Ansari et al. 2024) is a convex combination of mean-scaled windows of several series. The source is KernelSynth
or priors. A shard contains the series of a range of indices. Series i is TSMixup with probability `tsmixup` (published
pretraining: 0.9), else of the source; both depend on the corpus' seed and on i alone. TSMixup mixes real series and a
pool of series of the source, which are drawn again whenever one is picked. So a worker reads only the real series, and
its memory holds only these and one block.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import pyarrow as pa
from jaxtyping import Float32, Float64, Int64
from pydantic import Field

from tsfmscope.series.files.sources import load_bundled, load_parquet, select
from tsfmscope.series.synthetic.kernels import VALUES, Streams, series_seeds
from tsfmscope.series.synthetic.kernelsynth import as_series, draw_at
from tsfmscope.series.synthetic.priors import draw_from_seed
from tsfmscope.series.tables import series_table
from tsfmscope.series.types import Series
from tsfmscope.strict import Strict

# Concentration of the Dirichlet weights (Ansari et al. 2024).
ALPHA = 1.5
# K, the largest number of mixed series (Ansari et al. 2024).
MOST_SERIES = 3
# Shortest and longest mixed series in steps, both included (Ansari et al. 2024).
LENGTHS = (128, 2048)


class Mixture(NamedTuple):
    """Recipe of one mixture: windows of `length` steps of k series, with their starts and weights.

    picked: indices of the k series.
    """

    length: int
    picked: Int64[np.ndarray, " part"]
    starts: list[int]
    weights: Float64[np.ndarray, " part"]

    def of(self, series: Sequence[np.ndarray]) -> Float32[np.ndarray, " step"]:
        """Mix the picked series, given in the order of `picked`.

        A step missing in any window is missing in the mixture.
        """
        mixed = np.zeros(self.length)
        for values, start, weight in zip(series, self.starts, self.weights, strict=True):
            mixed += weight * scale_by_mean(values[start : start + self.length])
        return mixed.astype(np.float32)


class MixtureLaw:
    """Distribution of mixtures: k ~ U{1..MOST_SERIES} windows of one length with Dirichlet(ALPHA) weights.

    The length is uniform over LENGTHS, cut at the longest series. The k series are drawn uniformly, with
    replacement, from the series that are long enough.

    sizes: steps of every series.

    Raises:
        ValueError: no series has the shortest length.
    """

    def __init__(self, sizes: Sequence[int] | Int64[np.ndarray, " series"]) -> None:
        steps = np.asarray(sizes, dtype=np.int64)
        longest = int(steps.max(initial=0))
        if longest < LENGTHS[0]:
            raise ValueError(f"tsmixup: expected a series of at least {LENGTHS[0]} steps, got at most {longest}")
        self._longest = min(LENGTHS[1], longest)
        self._by_size = np.argsort(steps, kind="stable")
        self._sizes = steps[self._by_size]

    def draw(self, rng: np.random.Generator) -> Mixture:
        """Draw one mixture."""
        count = int(rng.integers(1, MOST_SERIES + 1))
        length = int(rng.integers(LENGTHS[0], self._longest + 1))
        ranks = rng.integers(int(np.searchsorted(self._sizes, length)), len(self._sizes), size=count)
        weights = rng.dirichlet(np.full(count, ALPHA))
        starts = [int(rng.integers(steps - length + 1)) for steps in self._sizes[ranks]]
        return Mixture(length, self._by_size[ranks], starts, weights)


def tsmixup(series: Sequence[np.ndarray], rng: np.random.Generator) -> Iterator[Float32[np.ndarray, " step"]]:
    """Yield mixed series without end. The arrays are indexed when needed, so `series` may be lazy.

    Raises:
        ValueError: no series has LENGTHS[0] steps. Raised at the call.
    """
    law = MixtureLaw([len(values) for values in series])
    mixtures = (law.draw(rng) for _ in itertools.count())
    return (mixture.of([series[index] for index in mixture.picked]) for mixture in mixtures)


def scale_by_mean(values: np.ndarray) -> Float64[np.ndarray, " step"]:
    """Divide values by their mean absolute value (NaN left out).

    Unscaled where that mean is 0 or nothing is observed.
    """
    values = np.asarray(values, dtype=np.float64)
    observed = np.abs(values[~np.isnan(values)])
    scale = observed.mean() if observed.size else 0.0
    return values / scale if scale > 0 else values


# What a corpus' own series are, and those of the pool of TSMixup.
Source = Literal["kernelsynth", "priors"]
# Number of series drawn together: a row group or batch of the file.
BLOCK = 1_000
# File in a corpus' folder with everything that determines its series.
CORPUS_FILE = "corpus.json"
# Prefix of the name of a real data set that statsmodels includes; other names are Parquet files.
REAL_PREFIX = "bundled:"
# gluonts requires a start; KernelSynth of the Chronos release writes this one too.
START = datetime(2000, 1, 1)


class CorpusOptions(Strict):
    """Options on which every series of a corpus depends, apart from the real series."""

    seed: int
    length: int = Field(description="steps of a series of the source")
    max_kernels: int = Field(description="J of Algorithm 1 of KernelSynth; priors have no kernels")
    tsmixup: float = Field(description="share of TSMixup series")
    pool: int = Field(description="number of series of the source that TSMixup may pick")
    source: Source = "kernelsynth"


def load_real(names: Iterable[str]) -> list[Series]:
    """Load the real series of the mixtures: Parquet files, or names after "bundled:"."""
    all_series: list[Series] = []
    for name in names:
        if name.startswith(REAL_PREFIX):
            all_series += load_bundled(name.removeprefix(REAL_PREFIX))
        else:
            all_series += select(load_parquet(Path(name))).series
    return all_series


def shard_tables(
    options: CorpusOptions, indices: range, real: Sequence[Series], *, for_gluonts: bool
) -> Iterator[pa.Table]:
    """Yield the tables of a shard: the series of these indices, at most BLOCK per table.

    for_gluonts: columns for gluonts' FileDataset and the Chronos training script, which read start and target; kernel,
    seed and provenance identify the draw.

    Raises:
        DataError: a composition's draw does not fit float32, named by its expression (none of the bank's does
            that).
        ValueError: no series of the pool or of the real ones has the shortest length that TSMixup draws.
    """
    for rows in _blocks(options, indices, real):
        table = series_table(rows)
        if for_gluonts:
            starts = pa.array(np.full(len(rows), np.datetime64(START, "s")))
            columns = {"item_id": table["series"], "start": starts, "target": table["values"]}
            table = pa.table({**columns, **{name: table[name] for name in ("kernel", "seed", "provenance")}})
        yield table


def _blocks(options: CorpusOptions, series_range: range, real: Sequence[Series]) -> Iterator[list[Series]]:
    law = None
    if options.tsmixup:
        law = MixtureLaw([*[options.length] * options.pool, *(len(series.values) for series in real)])
    for first in range(series_range.start, series_range.stop, BLOCK):
        indices = range(first, min(first + BLOCK, series_range.stop))
        # The name gives seeds that no other stream uses: a seed serves as the random number.
        chances = series_seeds(options.seed, indices, "tsmixup or kernelsynth")
        mixed = [index for index, seed in zip(indices, chances, strict=True) if seed < options.tsmixup * 2**63]
        plain = sorted(set(indices) - set(mixed))
        rows = dict(zip(plain, _draw_source(plain, options.seed, options), strict=True))
        rows |= _mixtures(mixed, options, law, real) if law else {}
        yield [rows[index] for index in indices]


def _draw_source(indices: Sequence[int], seed: int, options: CorpusOptions) -> list[Series]:
    """Draw the series of the source with these indices in the stream of `seed`."""
    if options.source == "priors":
        text, length = "priors: random components, link and disturbances, not fitted to data", options.length
        return [
            Series("priors", f"priors-{index:06d}", draw_from_seed(own, length), "synthetic", seed=own, provenance=text)
            for index, own in zip(indices, series_seeds(seed, indices, "priors"), strict=True)
        ]
    draws = draw_at(indices, seed, options.length, options.max_kernels)
    return [as_series("kernelsynth", "synthetic", index, draw) for index, draw in zip(indices, draws, strict=True)]


def _mixtures(
    indices: Sequence[int], options: CorpusOptions, law: MixtureLaw, real: Sequence[Series]
) -> dict[int, Series]:
    streams, seeds = Streams(), series_seeds(options.seed, indices, "tsmixup")
    mixtures = [law.draw(streams.of(seed, VALUES)) for seed in seeds]
    pool_ids = sorted({int(pool_id) for mixture in mixtures for pool_id in mixture.picked if pool_id < options.pool})
    # Another seed, so that no series of the source occurs both on its own and as part of a mixture.
    pool_seed = series_seeds(options.seed, [0], "pool of tsmixup")[0]
    pool = dict(zip(pool_ids, _draw_source(pool_ids, pool_seed, options), strict=True))
    series = {}
    for index, seed, mixture in zip(indices, seeds, mixtures, strict=True):
        parts = [pool[p] if p < options.pool else real[p - options.pool] for p in mixture.picked.tolist()]
        text = " + ".join(
            f"{weight:.4f} {part.dataset}/{part.series}[{start}:{start + mixture.length}]"
            for weight, part, start in zip(mixture.weights, parts, mixture.starts, strict=True)
        )
        values = mixture.of([part.values for part in parts])
        series[index] = Series("tsmixup", f"tsmixup-{index:06d}", values, "mixed", seed=seed, provenance=text)
    return series

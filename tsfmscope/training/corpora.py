"""Training corpus of small checkpoints: KernelSynth, first parts of bundled series, TSMixup of both."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tsfmscope.defaults import HELD_OUT, RANDOM_SOURCES
from tsfmscope.series.calendar import Clock, random_clock, start_of
from tsfmscope.series.catalog import MODALITIES, Modality
from tsfmscope.series.files.sources import BUNDLED, load_bundled
from tsfmscope.series.synthetic.kernelsynth import draw_many
from tsfmscope.series.synthetic.shards import tsmixup
from tsfmscope.training.options import Recipe
from tsfmscope.training.other_modalities import ContrastCorpus
from tsfmscope.training.priors_corpus import PriorsCorpus
from tsfmscope.training.shard_corpus import StreamedCorpus
from tsfmscope.training.windows import Batch, cut_windows, streams

# Key of a mixture that reads the shards in the folder recipe.corpus.
SHARDS = "shards"


@dataclass(frozen=True)
class Mixture:
    """Shares of the sources of training series, which sum to 1.

    The published pretraining (Ansari et al. 2024) mixes TSMixup and KernelSynth 9:1.
    """

    kernelsynth: float = 0.0
    tsmixup: float = 0.0
    bundled: float = 0.0


class Corpus:
    """Pool of series from which the batch of any step can be drawn again by its number alone."""

    # Kind of data of the values of a batch.
    modality: Modality = "series"

    def __init__(self, *, pool: int, length: int, mixture: Mapping[str, float], seed: int) -> None:
        self.mixture = Mixture(**mixture)
        self.seed = seed
        self.kernelsynth = [series.values for series in draw_many(pool, seed=seed, length=length)]
        bundled = [series for name in BUNDLED for series in load_bundled(name)]
        self.bundled = [series.values[: int(len(series.values) * (1 - HELD_OUT))] for series in bundled]
        self.clocks = [Clock(start_of(series.start), series.freq) for series in bundled]
        self._all = [*self.kernelsynth, *self.bundled]

    def batch(
        self, step: int, *, steps: int, contexts: Sequence[int], futures: Sequence[int], horizon: int, min_past: int
    ) -> Batch:
        """Draw the windows of a step (`cut_windows`). Bundled series have their own dates, others random dates."""
        rng, clocks = streams(self.seed, step)
        mixtures = tsmixup(self._all, rng)
        return cut_windows(
            lambda: self._series(rng, mixtures, clocks),
            rng,
            steps=steps,
            contexts=contexts,
            futures=futures,
            horizon=horizon,
            min_past=min_past,
        )

    def _series(
        self, rng: np.random.Generator, mixtures: Iterator[np.ndarray], clocks: np.random.Generator
    ) -> tuple[np.ndarray, Clock]:
        shares = (self.mixture.kernelsynth, self.mixture.tsmixup, self.mixture.bundled)
        source = rng.choice(3, p=shares)
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


AnyCorpus = Corpus | ContrastCorpus | PriorsCorpus | StreamedCorpus


def recipe_corpus(recipe: Recipe) -> AnyCorpus:
    """Return the corpus of a recipe's mixture: generated time series, shards, or one other modality."""
    mixture = {str(name): share for name, share in recipe.mixture.items()}
    source = next(iter(mixture))
    if source == SHARDS:
        assert recipe.corpus is not None, "a recipe of shards has a corpus"
        return StreamedCorpus(Path(recipe.corpus), recipe.seed)
    if set(mixture) <= set(RANDOM_SOURCES):
        return PriorsCorpus(mixture, recipe.phases, recipe.seed)
    if source in MODALITIES:
        return ContrastCorpus(source, recipe.seed)
    return Corpus(pool=recipe.pool, length=recipe.length, mixture=mixture, seed=recipe.seed)

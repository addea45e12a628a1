"""What small checkpoints are pretrained on: KernelSynth, TSMixup of it, and the first part of the bundled series."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tasks.compression.contrast import ContrastCorpus
from tasks.compression.streamed import StreamedCorpus
from tasks.compression.windows import cut
from tasks.series.bundled import BUNDLED, load_bundled
from tasks.series.catalog import MODALITIES, Modality
from tasks.series.kernelsynth import draw_many
from tasks.series.tsmixup import tsmixup

SHARDS = "shards"  # in a mixture: what stands in the folder recipe["corpus"]
HELD_OUT = 0.2  # share at the end of every bundled series that no checkpoint has seen


@dataclass(frozen=True)
class Mixture:
    """Shares of a training batch; they sum to 1. Published pretraining mixes TSMixup 9 : KernelSynth 1."""

    kernelsynth: float = 0.0
    tsmixup: float = 0.0
    bundled: float = 0.0


class Corpus:
    """A pool of series from which any training batch can be drawn again by its step alone."""

    modality: Modality = "series"  # what the values of a batch stand for

    def __init__(self, *, pool: int, length: int, mixture: Mapping[str, float], seed: int) -> None:
        self.mixture = Mixture(**mixture)
        self.seed = seed
        self.kernelsynth = [drawn.values for drawn in draw_many(pool, seed=seed, length=length)]
        series = [one for name in BUNDLED for one in load_bundled(name)]
        self.bundled = [one.values[: int(len(one.values) * (1 - HELD_OUT))] for one in series]
        self._all = [*self.kernelsynth, *self.bundled]

    def batch(
        self, step: int, *, steps: int, contexts: Sequence[int], futures: Sequence[int], horizon: int, min_past: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Context [B, C] and future [B, horizon], NaN where missing: see `windows.cut`."""
        rng = np.random.default_rng([self.seed, step])
        mixed = tsmixup(self._all, rng)
        return cut(
            lambda: self._series(rng, mixed),
            rng,
            steps=steps,
            contexts=contexts,
            futures=futures,
            horizon=horizon,
            min_past=min_past,
        )

    def _series(self, rng: np.random.Generator, mixed: Iterator[np.ndarray]) -> np.ndarray:
        shares = (self.mixture.kernelsynth, self.mixture.tsmixup, self.mixture.bundled)
        source = rng.choice(3, p=shares)
        if source == 0:
            return _shifted(self.kernelsynth[rng.integers(len(self.kernelsynth))], rng)
        if source == 1:
            return next(mixed)
        return self.bundled[rng.integers(len(self.bundled))]


def _shifted(values: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Half of the draws get a level, since Gaussian-process draws are centred and most real series are not."""
    if rng.random() < 0.5:
        return values
    spread = float(np.nanstd(values)) or 1.0
    return (values + np.float32(spread * rng.normal(0.0, 5.0))).astype(np.float32)


AnyCorpus = Corpus | ContrastCorpus | StreamedCorpus


def recipe_corpus(recipe: Mapping[str, Any]) -> AnyCorpus:
    """The corpus that a recipe names: drawn time series, shards, or the one other modality that its mixture holds."""
    source = next(iter(recipe["mixture"]))
    if source == SHARDS:
        return StreamedCorpus(Path(recipe["corpus"]), recipe["seed"])
    if source in MODALITIES:
        return ContrastCorpus(source, recipe["seed"])
    return Corpus(pool=recipe["pool"], length=recipe["length"], mixture=recipe["mixture"], seed=recipe["seed"])

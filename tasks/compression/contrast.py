"""What small checkpoints of other modalities are pretrained on: text, crops of photographs, tables."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from tasks.series import contrast
from tasks.series.catalog import Modality, modality

Items = Callable[[np.random.Generator, int, int, int], np.ndarray]  # count, context, horizon -> [count, their sum]


@dataclass(frozen=True)
class ContrastCorpus:
    """Draws any training batch again by its step alone. source: text, images or tables."""

    source: str
    seed: int

    @property
    def modality(self) -> Modality:
        """What the values of a batch stand for."""
        return modality(self.source)

    def batch(
        self, step: int, *, steps: int, contexts: Sequence[int], futures: Sequence[int], horizon: int, min_past: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Context [B, C] and future [B, horizon]: C one of `contexts`, B = steps // (C + horizon).

        Every item is whole, so that min_past says nothing here. Only the first F values of the future are there, F one
        of `futures`; NaN stands for the others.
        """
        rng = contrast.training_stream(self.seed, step)
        context, shown = (int(rng.choice(np.asarray(lengths))) for lengths in (contexts, futures))
        items = _ITEMS[self.source](rng, max(1, steps // (context + horizon)), context, horizon)
        items = items.astype(np.float32)
        items[:, context + shown :] = np.nan
        return items[:, :context], items[:, context:]


def _text(rng: np.random.Generator, count: int, context: int, horizon: int) -> np.ndarray:
    """Stretches of the built-in English that no data set is made of."""
    text = np.frombuffer(contrast.english()[0], np.uint8)
    starts = rng.integers(len(text) - context - horizon + 1, size=count)
    found: np.ndarray = text[starts[:, None] + np.arange(context + horizon)]
    return found


def _images(rng: np.random.Generator, count: int, context: int, horizon: int) -> np.ndarray:
    """Square crops that have as many values as the context."""
    side = math.isqrt(context // 3)
    if context != 3 * side * side or horizon != 1:
        raise ValueError(f"images: expected contexts of 3 n^2 pixels and horizon 1, got {context} and {horizon}")
    return np.stack([contrast.item(crop) for crop in contrast.crops(count, side, rng, seen=True)])


def _tables(rng: np.random.Generator, count: int, context: int, horizon: int) -> np.ndarray:
    """Tables that have as many cells as the context, and as many columns as the data set's."""
    columns = contrast.FEATURES + 1
    if context % columns or horizon != 1:
        raise ValueError(f"tables: expected contexts of {columns} n cells and horizon 1, got {context} and {horizon}")
    drawn = (contrast.draw_table(rng, context // columns, columns - 1) for _ in range(count))
    return np.stack([contrast.item(table) for table in drawn])


_ITEMS: dict[str, Items] = {"text": _text, "images": _images, "tables": _tables}

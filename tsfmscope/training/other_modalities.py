"""Training corpus of small checkpoints of other modalities: text, crops of photographs, tables."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from tsfmscope.series import other_modalities
from tsfmscope.series.catalog import Modality, modality
from tsfmscope.training.windows import Batch

# (rng, count, context, horizon) -> values [count, context + horizon]
Items = Callable[[np.random.Generator, int, int, int], np.ndarray]


@dataclass(frozen=True)
class ContrastCorpus:
    """Corpus whose training batch of any step can be drawn again, from the step number alone.

    source: text, images or tables.
    """

    source: str
    seed: int

    @property
    def modality(self) -> Modality:
        """Return the kind of data of the values of a batch."""
        return modality(self.source)

    def batch(
        self, step: int, *, steps: int, contexts: Sequence[int], futures: Sequence[int], horizon: int, min_past: int
    ) -> Batch:
        """Draw B = steps // (C + horizon) items, at least one: context [B, C] and future [B, horizon].

        C is drawn from `contexts`. Only the first F values of the future are shown, with F drawn from
        `futures`; the others are NaN. Every item is complete, so min_past has no effect.
        """
        rng = other_modalities.training_stream(self.seed, step)
        context, n_shown = (int(rng.choice(np.asarray(lengths))) for lengths in (contexts, futures))
        items = _ITEMS[self.source](rng, max(1, steps // (context + horizon)), context, horizon)
        items = items.astype(np.float32)
        items[:, context + n_shown :] = np.nan
        return Batch(items[:, :context], items[:, context:])


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
    return np.stack(
        [other_modalities.item(crop) for crop in other_modalities.crops(count, side, rng, is_training=True)]
    )


def _tables(rng: np.random.Generator, count: int, context: int, horizon: int) -> np.ndarray:
    """Return tables with as many cells as the context and as many columns as the data set.

    ValueError for other lengths or horizons.
    """
    columns = other_modalities.FEATURES + 1
    if context % columns or horizon != 1:
        raise ValueError(f"tables: expected contexts of {columns} n cells and horizon 1, got {context} and {horizon}")
    tables = (other_modalities.draw_table(rng, context // columns, columns - 1) for _ in range(count))
    return np.stack([other_modalities.item(table) for table in tables])


_ITEMS: dict[str, Items] = {"text": _text, "images": _images, "tables": _tables}

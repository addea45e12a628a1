"""Random streams by number: the streams of a series follow from its seed alone, in about a microsecond.

numpy's Philox (Salmon et al. 2011) is keyed, not seeded: setting its key starts another independent stream. A
series has two streams, so that its values can be drawn again from its kernel and seed without repeating the
choice of the kernel:

- `Generator(Philox(key=[seed, 0]))` chooses the kernel;
- `Generator(Philox(key=[seed, 1]))` draws the values.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

_COMPOSITION, _VALUES = 0, 1


class Streams:
    """One generator that is reset to the start of a stream at each call.

    A call invalidates the stream of the previous call.
    """

    def __init__(self) -> None:
        self._bits = np.random.Philox(key=[0, 0])
        self._start = self._bits.state
        self._generator = np.random.Generator(self._bits)

    def composition(self, seed: int) -> np.random.Generator:
        """Return the stream that chooses a series' kernel."""
        return self._at(seed, _COMPOSITION)

    def values(self, seed: int) -> np.random.Generator:
        """Return the stream that draws a series' values."""
        return self._at(seed, _VALUES)

    def _at(self, seed: int, stream: int) -> np.random.Generator:
        # A new Philox takes ten times as long as setting the state of this one.
        self._start["state"]["key"][:] = seed, stream
        self._bits.state = self._start
        return self._generator


def series_seeds(seed: int, indices: Sequence[int], dataset: str = "") -> list[int]:
    """Return 63-bit seeds of the series with these indices under the run's `seed`.

    Data sets with other names have other seeds. The seeds come from SplitMix64 (Steele et al. 2014), whose
    start follows from `seed` and `dataset`. Each is computed from its index, without the seeds before it.
    """
    start = np.random.SeedSequence((seed, *dataset.encode())).generate_state(1, np.uint64)[0]
    with np.errstate(over="ignore"):
        mixed = start + (np.array(indices, dtype=np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    seeds: list[int] = ((mixed ^ (mixed >> np.uint64(31))) >> np.uint64(1)).tolist()
    return seeds

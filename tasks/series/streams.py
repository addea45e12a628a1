"""Random streams by number: those of one series are found from its seed alone, in about a microsecond.

numpy's Philox (Salmon et al. 2011) is keyed, not seeded: setting its key starts another independent stream. A series
has two, so that its values can be drawn again from its kernel and seed without repeating the choice of the kernel:
`Generator(Philox(key=[seed, 0]))` chooses the kernel, `Generator(Philox(key=[seed, 1]))` draws the values.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

_COMPOSITION, _VALUES = 0, 1


class Streams:
    """One generator that is set to the start of one stream after another; each use ends the former."""

    def __init__(self) -> None:
        self._bits = np.random.Philox(key=[0, 0])
        self._start = self._bits.state
        self._generator = np.random.Generator(self._bits)

    def composition(self, seed: int) -> np.random.Generator:
        """The stream that chooses a series' kernel."""
        return self._at(seed, _COMPOSITION)

    def values(self, seed: int) -> np.random.Generator:
        """The stream that draws a series' values."""
        return self._at(seed, _VALUES)

    def _at(self, seed: int, stream: int) -> np.random.Generator:
        # a new Philox costs ten times as much as another state of this one
        self._start["state"]["key"][:] = seed, stream
        self._bits.state = self._start
        return self._generator


def series_seeds(seed: int, indices: Sequence[int], dataset: str = "") -> list[int]:
    """63-bit seeds of the series of these indices under the run's `seed`; sets of other names have other series.

    SplitMix64 (Steele et al. 2014) of a start that `seed` and `dataset` give: that of any index is found alone.
    """
    start = np.random.SeedSequence((seed, *dataset.encode())).generate_state(1, np.uint64)[0]
    with np.errstate(over="ignore"):
        mixed = start + (np.array(indices, dtype=np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    found: list[int] = ((mixed ^ (mixed >> np.uint64(31))) >> np.uint64(1)).tolist()
    return found

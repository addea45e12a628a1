"""Sets of job keys that fit a driver's memory: a million take 64 MB."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

WIDTH = 64  # hex digits of a SHA-256; shorter keys are padded
MAX_FRESH = 50_000  # keys kept beside the sorted array before they are merged into it


Asked: TypeAlias = np.ndarray | pa.Array | pa.ChunkedArray | Sequence[str]


def as_bytes(keys: Asked) -> np.ndarray:
    """Keys as a numpy array of dtype S64, in the same order."""
    if isinstance(keys, np.ndarray):
        return keys
    column = keys if isinstance(keys, pa.Array | pa.ChunkedArray) else pa.array(list(keys), pa.string())
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if not len(column):
        return np.empty(0, f"S{WIDTH}")
    if (longest := pc.max(pc.binary_length(column)).as_py()) > WIDTH:
        raise ValueError(f"job key: got {longest} bytes, expected at most {WIDTH}")
    padded = pc.ascii_rpad(column, WIDTH, padding="\0").cast(pa.binary()).cast(pa.binary(WIDTH))
    return np.frombuffer(padded.buffers()[1], f"S{WIDTH}", count=len(padded), offset=padded.offset * WIDTH)


def unique(keys: np.ndarray) -> np.ndarray:
    """Sorted keys without repeats; quick where they come as sorted runs, as from compacted files."""
    ascending = np.sort(keys, kind="stable")
    return ascending[np.append(True, ascending[1:] != ascending[:-1])] if len(keys) else ascending


class Keys:
    """A set of job keys: a sorted array, and a small set of what was added since."""

    def __init__(self, keys: np.ndarray | Iterable[str] = ()) -> None:
        self._sorted = unique(as_bytes(keys if isinstance(keys, np.ndarray) else list(keys)))
        self._fresh: set[bytes] = set()

    def __len__(self) -> int:
        return len(self._sorted) + len(self._fresh)

    def add(self, keys: Iterable[str]) -> None:
        """Add keys that are not yet held."""
        self._fresh.update(key.encode() for key in keys)
        if len(self._fresh) > MAX_FRESH:
            fresh = np.array(list(self._fresh), f"S{WIDTH}")
            self._sorted, self._fresh = np.union1d(self._sorted, fresh), set()

    @property
    def sorted(self) -> np.ndarray:
        """All keys, S64, ascending."""
        fresh = np.array(list(self._fresh), f"S{WIDTH}")
        return np.union1d(self._sorted, fresh) if len(fresh) else self._sorted

    def remove(self, keys: Iterable[str]) -> None:
        """Take keys out; those not held do not matter."""
        gone = as_bytes(list(keys))
        self._fresh.difference_update(gone.tolist())
        self._sorted = self._sorted[~np.isin(self._sorted, gone)]

    def holds(self, keys: Asked) -> np.ndarray:
        """Boolean array: which of the keys are held."""
        asked = as_bytes(keys)
        held = np.zeros(len(asked), bool)
        if len(self._sorted):
            order = np.argsort(asked, kind="stable")  # neighbours are looked up beside each other, four times as fast
            places = np.minimum(np.searchsorted(self._sorted, asked[order]), len(self._sorted) - 1)
            held[order] = self._sorted[places] == asked[order]
        if self._fresh:
            held |= np.fromiter((key in self._fresh for key in asked.tolist()), bool, len(asked))
        return held

"""Compact sets of job keys: a million keys take 64 MB of a driver's memory."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

# Hex digits of a SHA-256; shorter keys are padded.
WIDTH = 64
# Maximum number of new keys outside the sorted array; more are merged into it.
MAX_FRESH = 50_000
# Keys processed at once, so that intermediate arrays stay small.
SLICE = 65_536

Asked: TypeAlias = np.ndarray | pa.Array | pa.ChunkedArray | Sequence[str]


def as_bytes(keys: Asked) -> np.ndarray:
    """Convert keys to a numpy array of dtype S64, in the same order.

    Raises ValueError if a key is longer than 64 bytes.
    """
    if isinstance(keys, np.ndarray):
        return keys
    column = keys if isinstance(keys, pa.Array | pa.ChunkedArray) else pa.array(list(keys), pa.string())
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if not len(column):
        return np.empty(0, f"S{WIDTH}")
    lengths = pc.min_max(pc.binary_length(column)).as_py()
    if lengths["max"] > WIDTH:
        raise ValueError(f"job key: got {lengths['max']} bytes, expected at most {WIDTH}")
    if lengths["min"] == WIDTH and column.type == pa.string() and not column.null_count:
        # All keys have the full width and lie one after the other, so the buffer is used without a
        # copy.
        _, offsets, characters = column.buffers()
        first = np.frombuffer(offsets, np.int32, 1, offset=4 * column.offset)[0]
        return np.frombuffer(characters, f"S{WIDTH}", count=len(column), offset=first)
    padded = pc.ascii_rpad(column, WIDTH, padding="\0").cast(pa.binary()).cast(pa.binary(WIDTH))
    return np.frombuffer(padded.buffers()[1], f"S{WIDTH}", count=len(padded), offset=padded.offset * WIDTH)


def unique(keys: np.ndarray) -> np.ndarray:
    """Return sorted keys without duplicates.

    This is fast if the input consists of sorted runs (compacted files).
    """
    keys = ascending(keys)
    first = np.ones(len(keys), bool)
    for start in range(1, len(keys), SLICE):
        some = keys[start - 1 : start + SLICE]
        first[start : start + SLICE] = some[1:] != some[:-1]
    return keys if first.all() else keys[first]


def ascending(keys: np.ndarray) -> np.ndarray:
    """Return sorted keys; if the input is sorted already, return it unchanged (the same array)."""
    parts = (keys[start : start + SLICE + 1] for start in range(0, len(keys), SLICE))
    return keys if all((some[:-1] <= some[1:]).all() for some in parts) else np.sort(keys, kind="stable")


class KeySet:
    """Set of job keys: a sorted array, and a small set of keys that were added later."""

    def __init__(self, keys: np.ndarray | Iterable[str] = ()) -> None:
        self._sorted = unique(as_bytes(keys if isinstance(keys, np.ndarray) else list(keys)))
        self._fresh: set[bytes] = set()

    def __len__(self) -> int:
        return len(self._sorted) + len(self._fresh)

    def add(self, keys: Iterable[str]) -> None:
        """Add keys. `len` is exact only if the set does not contain them yet."""
        self._fresh.update(key.encode() for key in keys)
        if len(self._fresh) > MAX_FRESH:
            fresh = np.array(list(self._fresh), f"S{WIDTH}")
            self._sorted, self._fresh = np.union1d(self._sorted, fresh), set()

    @property
    def sorted(self) -> np.ndarray:
        """Sorted array of all keys, dtype S64."""
        fresh = np.array(list(self._fresh), f"S{WIDTH}")
        return np.union1d(self._sorted, fresh) if len(fresh) else self._sorted

    def remove(self, keys: Iterable[str]) -> None:
        """Remove keys; keys that the set does not contain are ignored."""
        removed = as_bytes(list(keys))
        self._fresh.difference_update(removed.tolist())
        self._sorted = self._sorted[~np.isin(self._sorted, removed)]

    def holds(self, keys: Asked) -> np.ndarray:
        """Return a boolean array: for each key, whether the set contains it."""
        keys_array = as_bytes(keys)
        is_held = np.zeros(len(keys_array), bool)
        for start in range(0, len(keys_array) if len(self._sorted) else 0, SLICE):
            some = keys_array[start : start + SLICE]
            # Sorted keys are looked up at neighbouring places, which is faster because of the
            # processor's cache.
            order = np.argsort(some, kind="stable")
            some = some[order]
            indices = np.minimum(np.searchsorted(self._sorted, some), len(self._sorted) - 1)
            is_held[start + order] = self._sorted[indices] == some
        if self._fresh:
            is_held |= np.fromiter((key in self._fresh for key in keys_array.tolist()), bool, len(keys_array))
        return is_held

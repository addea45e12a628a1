"""Large arrays in memory that is kept: the next one of about the same size takes it over."""

from __future__ import annotations

import errno
import math
import mmap
import weakref

import numpy as np

LARGE = 2**24  # bytes: malloc gives back all that is larger than 32 MiB as soon as it is free, and often what is less
KEPT = 2  # blocks that nobody has: a model of two stacks fills two at once
KEPT_BYTES = 2**29  # and no more together: what a page fault costs is little beside a job that fills so much

_free: list[mmap.mmap] = []


def empty(shape: tuple[int, ...]) -> np.ndarray:
    """An array of float32 with anything in it, as numpy's.

    Where it is large, its memory is kept for the next one once nobody sees it any more. A job's 100 MB, taken and
    given back each time, cost a seventh of its forward pass in page faults on a virtual machine whose host takes back
    what is free, and a hundredth elsewhere. MemoryError where there is not enough.
    """
    size = 4 * math.prod(shape)
    if size < LARGE:
        return np.empty(shape, np.float32)
    memory = _taken(size)
    owner = np.frombuffer(memory, np.float32, math.prod(shape))  # every view of it keeps this one alive
    weakref.finalize(owner, _give_back, memory).atexit = False
    return owner.reshape(shape)


def _taken(size: int) -> mmap.mmap:
    fitting = sorted((block for block in _free if len(block) >= size), key=len)
    for old in fitting or sorted(_free, key=len, reverse=True):
        try:
            _free.remove(old)  # not theirs alone: threads may ask at once
        except ValueError:
            continue
        if fitting:
            return old
        break  # too small a block makes room for its successor
    try:
        block = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except OSError as error:
        if error.errno != errno.ENOMEM:
            raise
        raise MemoryError(f"no {size} bytes for an array") from error
    if hasattr(mmap, "MADV_HUGEPAGE"):
        block.madvise(mmap.MADV_HUGEPAGE)  # as numpy does: the first touch costs half
    return block


def drop() -> None:
    """Give back the memory that is kept and that nobody has."""
    _free.clear()


def _give_back(block: mmap.mmap) -> None:
    if len(_free) < KEPT and sum(map(len, _free)) + len(block) <= KEPT_BYTES:
        _free.append(block)

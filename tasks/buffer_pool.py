"""Pool of memory blocks for large arrays: the next array of about the same size reuses a freed block."""

from __future__ import annotations

import errno
import math
import mmap
import weakref

import numpy as np

# Size in bytes from which blocks are pooled. malloc returns every freed block above 32 MiB to the
# system at once, and often smaller ones.
LARGE = 2**24
# Largest number of free blocks that are kept: a model with two stacks fills two at once.
MAX_BLOCKS = 2
# Largest total size in bytes of the kept blocks. For a job that fills more, page faults cost little
# next to its other work.
MAX_BYTES = 2**29

_free: list[mmap.mmap] = []


def empty(shape: tuple[int, ...]) -> np.ndarray:
    """Return an uninitialised float32 array, like numpy.empty.

    The memory of a large array is kept for the next one once nothing refers to it any more. Allocating and
    freeing a job's 100 MB each time cost a seventh of its forward pass in page faults on a virtual machine
    whose host reclaims free memory, and a hundredth elsewhere.

    Raises:
        MemoryError: there is not enough memory.
    """
    size = 4 * math.prod(shape)
    if size < LARGE:
        return np.empty(shape, np.float32)
    memory = _take_block(size)
    # Every view of the array keeps `owner` alive.
    owner = np.frombuffer(memory, np.float32, math.prod(shape))
    weakref.finalize(owner, _give_back, memory).atexit = False
    return owner.reshape(shape)


def _take_block(size: int) -> mmap.mmap:
    fitting = sorted((block for block in _free if len(block) >= size), key=len)
    for free_block in fitting or sorted(_free, key=len, reverse=True):
        try:
            # Another thread may have taken the block in the meantime.
            _free.remove(free_block)
        except ValueError:
            continue
        if fitting:
            return free_block
        # No kept block is large enough: the largest is dropped to make space for a new one.
        break
    try:
        block = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except OSError as error:
        if error.errno != errno.ENOMEM:
            raise
        raise MemoryError(f"no {size} bytes for an array") from error
    if hasattr(mmap, "MADV_HUGEPAGE"):
        # As numpy does; it halves the cost of the first touch.
        block.madvise(mmap.MADV_HUGEPAGE)
    return block


def drop() -> None:
    """Free the kept memory blocks that no array uses."""
    _free.clear()


def _give_back(block: mmap.mmap) -> None:
    if len(_free) < MAX_BLOCKS and sum(map(len, _free)) + len(block) <= MAX_BYTES:
        _free.append(block)

"""Memory of large arrays: lent to one at a time, taken over by the next."""

from __future__ import annotations

import gc

import numpy as np
import pytest
import torch

from tsfmscope.tasks import buffer_pool
from tsfmscope.tasks.sweep.actor import _free_memory

ROWS = buffer_pool.LARGE // 4 // 64  # of 64 numbers: as small as a large array can be


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(buffer_pool, "_free", [])


def address(array: np.ndarray) -> int:
    return int(array.__array_interface__["data"][0])


@pytest.mark.parametrize("rows", [ROWS, ROWS - 1])
def test_an_array_has_its_shape_and_can_be_written(rows: int) -> None:
    array = buffer_pool.empty((2, rows // 2, 64))
    array[:] = 1
    assert (array.shape, array.dtype, array.sum()) == ((2, rows // 2, 64), np.float32, 2 * (rows // 2) * 64)


def test_the_next_array_has_the_memory_of_one_that_nobody_sees() -> None:
    first = buffer_pool.empty((2 * ROWS, 64))
    place = address(first)
    del first
    assert address(buffer_pool.empty((ROWS, 70))) == place


@pytest.mark.parametrize(
    "view",
    [
        lambda array: array[3:, 1],
        lambda array: array.reshape(-1)[5:].reshape(-1, 1).T,
        lambda array: torch.from_numpy(array[2:]).flatten()[7:],
        lambda array: memoryview(array)[1:],
        lambda array: np.asarray(torch.from_numpy(array)[4]),
    ],
)
def test_memory_that_is_still_seen_is_lent_to_nobody_else(view) -> None:
    array = buffer_pool.empty((ROWS, 64))
    array[:] = 7
    seen, place = view(array), address(array)
    del array
    gc.collect()
    other = buffer_pool.empty((ROWS, 64))
    other[:] = 8
    assert address(other) != place
    assert (np.asarray(seen) == 7).all()


def test_small_arrays_are_numpys_own() -> None:
    place = buffer_pool.empty((ROWS - 1, 64))
    del place
    assert buffer_pool._free == []


def test_a_larger_array_takes_a_smaller_ones_place_and_few_are_kept() -> None:
    del [buffer_pool.empty((ROWS, 64))][:]
    large = buffer_pool.empty((2 * ROWS, 64))
    assert buffer_pool._free == []
    arrays = [large, *(buffer_pool.empty((ROWS, 64)) for _ in range(3))]
    del large
    arrays.clear()
    assert len(buffer_pool._free) == buffer_pool.MAX_BLOCKS


def test_what_takes_more_than_all_that_may_be_kept_is_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(buffer_pool, "MAX_BYTES", 3 * buffer_pool.LARGE)
    arrays = [buffer_pool.empty((2 * ROWS, 64)), buffer_pool.empty((2 * ROWS, 64))]
    arrays.clear()
    assert [len(block) for block in buffer_pool._free] == [2 * buffer_pool.LARGE]
    del [buffer_pool.empty((4 * ROWS, 64))][:]
    assert buffer_pool._free == []


def test_where_memory_lacks_the_error_says_so_and_what_was_kept_goes() -> None:
    with pytest.raises(MemoryError, match=f"no {2**60} bytes for an array"):
        buffer_pool.empty((2**58,))
    del [buffer_pool.empty((ROWS, 64))][:]
    assert len(buffer_pool._free) == 1
    _free_memory()
    assert buffer_pool._free == []

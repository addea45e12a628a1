"""Peak of the resident memory of a process."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from tsfmscope.process_memory import peak_bytes, peak_bytes_since_start, reset_peak, resident_bytes

# Large against what other threads and the allocator give back meanwhile: 7 MB in one run.
SIZE = 2**28


def test_the_peak_contains_an_array_until_it_is_reset() -> None:
    before = resident_bytes()
    if sys.platform != "linux" or before is None:
        pytest.skip("the peak can be reset on Linux only")
    array = np.ones(SIZE, np.int8)
    del array
    peak = peak_bytes()
    assert peak is not None and peak >= before + 0.9 * SIZE
    assert peak_bytes_since_start() >= peak
    reset_peak()
    lower = peak_bytes()
    assert lower is not None and lower <= peak - 0.9 * SIZE

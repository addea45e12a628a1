"""Memory of this process: resident bytes, and their peak since the last reset (Linux with glibc)."""

from __future__ import annotations

import ctypes
import gc

from tsfmscope import process_memory

MIB = 2**20


def resident_bytes() -> int:
    """Return the resident bytes, and reset the peak.

    Freed memory is returned to the system first, so that it counts when it is allocated again.
    """
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    process_memory.reset_peak()
    resident = process_memory.resident_bytes()
    assert resident is not None, "measurements of memory need Linux"
    return resident


def peak() -> int:
    """Return the peak of the resident bytes since the last call of `resident_bytes`, or since the process began."""
    return process_memory.peak_bytes_since_start()

"""Memory of this process: resident bytes, and their peak since the last reset (Linux with glibc).

getrusage's ru_maxrss does not serve: it cannot be reset, and a child process starts with its parent's value.
"""

from __future__ import annotations

import ctypes
import gc
from pathlib import Path

MIB = 2**20


def resident_bytes() -> int:
    """Return the resident bytes, and reset the peak.

    Freed memory is returned to the system first, so that it counts when it is allocated again.
    """
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")
    return _status("VmRSS")


def peak() -> int:
    """Return the peak of the resident bytes since the last call of `resident_bytes`, or since the process began."""
    return _status("VmHWM")


def _status(name: str) -> int:
    return int(Path("/proc/self/status").read_text().partition(f"{name}:")[2].split()[0]) * 1024

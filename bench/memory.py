"""Memory of this process: what it holds, and the most that it has held since (Linux with glibc).

Not getrusage's ru_maxrss, which never begins anew and with which a child starts at its parent's.
"""

from __future__ import annotations

import ctypes
import gc
from pathlib import Path

MIB = 2**20


def held() -> int:
    """Bytes now, after freed memory is given back, so that it counts when it is taken again; the peak begins anew."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")
    return _status("VmRSS")


def peak() -> int:
    """The most bytes since `held` was asked, or since the process began."""
    return _status("VmHWM")


def _status(name: str) -> int:
    return int(Path("/proc/self/status").read_text().partition(f"{name}:")[2].split()[0]) * 1024

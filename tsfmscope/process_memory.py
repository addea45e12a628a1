"""Resident memory of this process and its peak, as Linux counts them: libraries included, in bytes.

getrusage's ru_maxrss does not serve where /proc exists: it cannot be reset, and a new process begins with its parent's
value.
"""

from __future__ import annotations

import gc
import sys
from pathlib import Path

STATUS, CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")
# Written to CLEAR, this sets the peak to the present value (man 5 proc).
RESET = "5"


def resident_bytes() -> int | None:
    """Return the resident bytes; None where the system does not report them."""
    return _read_status("VmRSS")


def peak_bytes() -> int | None:
    """Return the peak since the last reset, or since the process began; None where the system does not report it."""
    return _read_status("VmHWM")


def peak_bytes_since_start() -> int:
    """Return the peak of a process that does not reset it; elsewhere than on Linux that of getrusage."""
    if (peak := peak_bytes()) is not None:
        return peak
    # Windows has no such module.
    import resource

    # macOS counts bytes, others kibibytes.
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def reset_peak() -> None:
    """Collect garbage, and on Linux set the peak to the present value."""
    gc.collect()
    if CLEAR.exists():
        CLEAR.write_text(RESET)


def _read_status(name: str) -> int | None:
    if not STATUS.exists():
        return None
    return int(STATUS.read_text().partition(f"{name}:")[2].split()[0]) * 1024

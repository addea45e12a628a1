"""Progress of long work, for whoever watches it. Nothing is printed here."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextvars import ContextVar
from datetime import timedelta

# Arguments: the current step, how much of it is done, and of how much (0: not known).
Watcher = Callable[[str, int, int], None]
WATCHER: ContextVar[Watcher | None] = ContextVar("WATCHER", default=None)


def show(step: str, n_done: int = 0, total: int = 0) -> None:
    """Tell the watcher, if there is one, what is being done. The command line sets one."""
    if (watcher := WATCHER.get()) is not None:
        watcher(step, n_done, total)


def with_rate(step: str) -> Callable[[int, int], None]:
    """Return a function of the numbers done and of all that shows them with the rate and the time left."""
    times: list[float] = []

    def show_rate(n_done: int, total: int) -> None:
        times.append(time.monotonic())
        # The clock starts at the first call, since the work before the first step is of another kind.
        seconds = (times[-1] - times[0]) / max(1, len(times) - 1)
        time_left = timedelta(seconds=round(seconds * (total - n_done)))
        show(f"{step}, {1 / seconds:.1f} steps/s, {time_left} left" if seconds else step, n_done, total)

    return show_rate

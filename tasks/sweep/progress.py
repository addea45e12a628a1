"""How far a sweep is, and showing it: a bar where there is a terminal, else a line every few seconds."""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TextIO

LINE_S = 10.0  # between lines where there is no terminal
RATE_WINDOW_S = 30.0  # the rate is that of so many last seconds


@dataclass(frozen=True)
class Progress:
    """One moment of a sweep. Counts are jobs; rate is jobs/s; seconds_left is None while it cannot be told."""

    planned: int
    reused: int  # stored before this run
    done: int
    failed: int
    running: int
    rate: float
    seconds_left: float | None

    @property
    def left(self) -> int:
        """Jobs neither stored before, nor done, nor failed."""
        return self.planned - self.reused - self.done - self.failed

    def __str__(self) -> str:
        ahead = "" if self.seconds_left is None else f", {_clock(self.seconds_left)} left"
        failed = f", {self.failed} failed" if self.failed else ""
        reused = f" ({self.reused} from before)" if self.reused else ""
        finished = self.reused + self.done + self.failed
        return f"{finished}/{self.planned} jobs{reused}{failed}, {self.running} running, {self.rate:.3g}/s{ahead}"


class Rate:
    """Jobs a second over the last while."""

    def __init__(self, window_seconds: float = RATE_WINDOW_S) -> None:
        self._window = window_seconds
        self._points: deque[tuple[float, int]] = deque()

    def update(self, finished: int, now: float | None = None) -> float:
        """The rate, now that so many jobs have finished."""
        now = time.monotonic() if now is None else now
        self._points.append((now, finished))
        while len(self._points) > 2 and now - self._points[1][0] >= self._window:
            self._points.popleft()
        began, before = self._points[0]
        return (finished - before) / (now - began) if now > began else 0.0


@contextmanager
def show(title: str, stream: TextIO | None = None) -> Iterator[Callable[[Progress], None]]:
    """A `report` for `engine.run` that draws on the stream (standard error)."""
    stream = stream or sys.stderr
    if stream.isatty():
        with _bar(title, stream) as report:
            yield report
    else:
        yield _lines(title, stream)


def _lines(title: str, stream: TextIO) -> Callable[[Progress], None]:
    last = float("-inf")

    def report(progress: Progress) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= LINE_S or progress.left == 0:
            last = now
            print(f"{title}: {progress}", file=stream, flush=True)

    return report


@contextmanager
def _bar(title: str, stream: TextIO) -> Iterator[Callable[[Progress], None]]:
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn
    from rich.progress import Progress as Bar

    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[text]}"))
    with Bar(*columns, console=Console(file=stream), refresh_per_second=4) as bar:
        row = bar.add_task(title, total=None, text="planning")

        def report(progress: Progress) -> None:
            finished = progress.reused + progress.done + progress.failed
            bar.update(row, total=progress.planned, completed=finished, text=str(progress))

        yield report


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"

"""Progress of a sweep, and its display: a bar on a terminal, else one line every few seconds."""

from __future__ import annotations

import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TextIO

# Seconds between lines where there is no terminal.
LINE_S = 10.0
# Length of the period, in seconds, over which the rate is computed.
RATE_WINDOW_S = 30.0
# Seconds after which a job is named.
LONG_S = 30.0
# Largest number of nodes that are listed. Of more nodes, the least busy are listed.
NAMED_NODES = 6


@dataclass(frozen=True)
class Progress:
    """State of a sweep at one moment.

    Counts are jobs; rate is in jobs/s; seconds_left is None while it is unknown. nodes: node -> number of
    busy actors and number of actors. longest: task and job group of the job that has run longest, and its seconds.
    """

    planned: int
    # Jobs stored before this run.
    reused: int
    done: int
    failed: int
    running: int
    rate: float
    seconds_left: float | None
    nodes: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    longest: tuple[str, float] | None = None

    @property
    def remaining(self) -> int:
        """Return the number of jobs neither stored before, nor done, nor failed."""
        return self.planned - self.reused - self.done - self.failed

    def __str__(self) -> str:
        return "; ".join(filter(None, (self.counts, self.node_usage)))

    @property
    def counts(self) -> str:
        """Format jobs, rate, time left, and a job that runs long as text."""
        ahead = "" if self.seconds_left is None else f", {format_duration(self.seconds_left)} left"
        failed = f", {self.failed} failed" if self.failed else ""
        reused = f" ({self.reused} from before)" if self.reused else ""
        finished = self.reused + self.done + self.failed
        text = f"{finished}/{self.planned} jobs{reused}{failed}, {self.running} running, {self.rate:.3g}/s{ahead}"
        if self.longest is None or self.longest[1] < LONG_S:
            return text
        name, seconds = self.longest
        return f"{text} ({name} for {format_duration(seconds)})"

    @property
    def node_usage(self) -> str:
        """Format the busy actors by node; empty for a single node, since its busy actors are the running jobs."""
        if len(self.nodes) < 2:
            return ""
        named = sorted(self.nodes.items())
        if len(named) <= NAMED_NODES:
            return f"busy actors: {_format_nodes(named)}"
        least = sorted(named, key=lambda pair: pair[1][0] / pair[1][1])[:NAMED_NODES]
        busy, total = (sum(counts) for counts in zip(*self.nodes.values(), strict=True))
        return f"busy actors: {busy}/{total} on {len(named)} nodes, least {_format_nodes(least)}"


def usage(actors: Iterable[tuple[str, bool]]) -> dict[str, tuple[int, int]]:
    """Count actors by node: node -> (busy actors, actors).

    actors: each actor's node, and whether it is busy.
    """
    pairs = list(actors)
    busy, total = Counter(node for node, works in pairs if works), Counter(node for node, _ in pairs)
    return {node: (busy[node], count) for node, count in sorted(total.items())}


class Rate:
    """Jobs per second over the last `window_seconds`."""

    def __init__(self, window_seconds: float = RATE_WINDOW_S) -> None:
        self._window = window_seconds
        self._points: deque[tuple[float, int]] = deque()

    def update(self, finished: int, now: float | None = None) -> float:
        """Return the rate after `finished` jobs have finished in total."""
        now = time.monotonic() if now is None else now
        self._points.append((now, finished))
        while len(self._points) > 2 and now - self._points[1][0] >= self._window:
            self._points.popleft()
        began, before = self._points[0]
        return (finished - before) / (now - began) if now > began else 0.0


@contextmanager
def show(title: str, stream: TextIO | None = None) -> Iterator[Callable[[Progress], None]]:
    """Yield a `report` for `engine.run` that draws on the stream (default: standard error)."""
    stream = stream or sys.stderr
    if stream.isatty():
        with _bar(title, stream) as report:
            yield report
    else:
        last = float("-inf")

        def print_line(progress: Progress) -> None:
            nonlocal last
            now = time.monotonic()
            if now - last >= LINE_S or progress.remaining == 0:
                last = now
                print(f"{title}: {progress}", file=stream, flush=True)

        yield print_line


@contextmanager
def _bar(title: str, stream: TextIO) -> Iterator[Callable[[Progress], None]]:
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn
    from rich.progress import Progress as Bar

    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[text]}"))
    with Bar(*columns, console=Console(file=stream), refresh_per_second=4) as bar:
        row = bar.add_task(title, total=None, text="planning")
        # A second row, shown only if there is more than one node.
        nodes = bar.add_task("", total=None, text="", visible=False)

        def report(progress: Progress) -> None:
            finished = progress.reused + progress.done + progress.failed
            bar.update(row, total=progress.planned, completed=finished, text=progress.counts)
            busy, total = (sum(counts[at] for counts in progress.nodes.values()) for at in (0, 1))
            bar.update(nodes, total=total, completed=busy, text=progress.node_usage, visible=bool(progress.node_usage))

        yield report


def _format_nodes(nodes: Iterable[tuple[str, tuple[int, int]]]) -> str:
    return ", ".join(f"{node} {busy}/{total}" for node, (busy, total) in nodes)


def format_duration(seconds: float) -> str:
    """Format seconds as 0:07, 12:34 or 1:02:03."""
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"

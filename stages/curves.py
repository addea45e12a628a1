"""Training curves as DVCLive's files: followed while trainings run, and the same bytes whatever came before at the end.

The driver writes them, from what trainings log beside their state: workers may run where no repository is, and a
training that was killed does some steps twice.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stages.folders import WORK
from tasks.compression.pretraining import PROGRESS
from tasks.sweep.jobs import Job
from tasks.sweep.progress import clock

if TYPE_CHECKING:
    from dvclive import Live

logger = logging.getLogger(__name__)
EVERY = 5.0  # seconds between two looks at the trainings that run
SAID_EVERY = 30.0  # seconds between two lines about them
NAMED = 4  # of more, those that are nearest to their end are named


@contextmanager
def followed(curves: Path, jobs: Mapping[str, Job]) -> Iterator[None]:
    """While inside, what the jobs log appears under curves/NAME, for `dvc plots show` and editors that follow it.

    How far they are stands on standard error now and then.
    """
    over = threading.Event()
    thread = threading.Thread(target=_follow, args=(curves, jobs, over), name="curves", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def write(folder: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """A DVCLive folder of a training's rows (step, loss), in place of what was there."""
    live = _live(folder)
    for row in rows:
        _log(live, row)


def _follow(curves: Path, jobs: Mapping[str, Job], over: threading.Event) -> None:
    """Until `over`, and once more then. A curve that cannot be written is no reason to end a training."""
    lives: dict[str, Live] = {}
    news: dict[str, dict[str, Any]] = {}  # the last row of each training that went on since the last line about them
    said, ended = time.monotonic(), False
    while not ended:
        ended = over.wait(EVERY)
        for name, job in jobs.items():
            try:
                rows = logged(WORK / job.key)
                if rows and name not in lives:
                    lives[name] = _live(curves / name)
                for row in rows:
                    if row["step"] > lives[name].step:
                        _log(lives[name], row)
                        news[name] = row
            except (OSError, ValueError) as error:  # ValueError: a line that a kill cut off
                logger.warning("curve of %s: %s", name, error)
        if news and time.monotonic() - said >= SAID_EVERY:
            print(f"{curves.parent.name}: {_said(news)}", file=sys.stderr, flush=True)
            news, said = {}, time.monotonic()


def _said(news: Mapping[str, Mapping[str, Any]]) -> str:
    """How far trainings are, in words."""
    nearest = sorted(news, key=lambda name: news[name]["seconds_left"])
    each = [
        f"{name} at step {news[name]['step']} of {news[name]['steps']}, loss {news[name]['loss']:.4g}, "
        f"{clock(news[name]['seconds_left'])} left"
        for name in nearest[:NAMED]
    ]
    return "; ".join([*each, f"{len(nearest) - NAMED} more"] if len(nearest) > NAMED else each)


def logged(folder: Path) -> list[dict[str, Any]]:
    """What a training that works in a folder has logged, by step; steps that it did twice, after a kill, stand once."""
    try:
        text = (folder / PROGRESS).read_text()
    except FileNotFoundError:  # it has not begun, or is done
        return []
    rows = (json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines())
    return sorted({row["step"]: row for row in rows}.values(), key=lambda row: row["step"])


def _live(folder: Path) -> Live:
    """DVCLive's writer of an empty folder, which makes no experiment, no dvc.yaml and no call to DVC Studio."""
    os.environ.setdefault("DVC_STUDIO_OFFLINE", "true")  # a token would have every curve sent there as an experiment
    from dvclive import Live

    live = Live(str(folder), save_dvc_exp=False, dvcyaml=None)
    if repository := getattr(live, "_dvc_repo", None):  # it has looked for an experiment's name there
        repository.close()
    return live


def _log(live: Live, row: Mapping[str, Any]) -> None:
    live.step = row["step"]
    live.log_metric("loss", row["loss"])  # and no summary: `dvc plots` would take its metrics.json for a curve

"""Scheduler of a search: Ray's asynchronous halving, made persistent.

Tune's own saved state does not contain the rungs, so every row is logged.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import Any

from ray.tune import Callback
from ray.tune.experiment import Trial
from ray.tune.schedulers import ASHAScheduler, FIFOScheduler

from tasks.sweep.halving import Halving


class PersistentAsha(FIFOScheduler):
    """Asynchronous halving of the rows of jobs, separately in each group.

    path: log of every row, in order; a row is written there before it is judged. A new scheduler replays it,
    so a killed search resumes with the same decisions. Only rows that had not arrived are lost; a job that
    continues reports them again (see `job.report`). A row that arrives a second time is not judged
    again.

    groups: key of a job -> its group; "" for other jobs.
    """

    def __init__(self, halving: Halving, path: Path, groups: Mapping[str, str] = MappingProxyType({})) -> None:
        super().__init__()
        # Keys of the stopped jobs.
        self.stopped_keys: set[str] = set()
        self.halving, self._path = halving, path
        self._groups, self._halvings = groups, {name: _asha(halving) for name in {"", *groups.values()}}
        # Key -> times of its rows.
        self._times: dict[str, set[float]] = {}
        for row in _read_complete_rows(path):
            self._decide(row.pop("key"), row)

    def on_trial_result(self, tune_controller: Any, trial: Any, result: Mapping[str, Any]) -> str:
        """Handle a row that a trial reports; called by Tune."""
        return self.report(trial.config["key"], result)

    def report(self, key: str, result: Mapping[str, Any]) -> str:
        """Return STOP or CONTINUE for the job with this key, from time and metric of the result alone."""
        row = {name: result[name] for name in (self.halving.time, self.halving.metric) if name in result}
        if key not in self.stopped_keys and len(row) == 2 and row[self.halving.time] not in self._times.get(key, ()):
            with self._path.open("a") as file:
                file.write(json.dumps({"key": key, **row}) + "\n")
            self._decide(key, row)
        return str(self.STOP if key in self.stopped_keys else self.CONTINUE)

    def has_rows(self, key: str) -> bool:
        """Return whether a row of this job has arrived."""
        return key in self._times

    def _decide(self, key: str, row: Mapping[str, Any]) -> None:
        asha = self._halvings[self._groups.get(key, "")]
        # Tune's own trial ids differ in each run.
        trial = SimpleNamespace(trial_id=key)
        if key not in self._times:
            asha.on_trial_add(None, trial)
        self._times.setdefault(key, set()).add(row[self.halving.time])
        if asha.on_trial_result(None, trial, dict(row)) == self.STOP:
            self.stopped_keys.add(key)


def _asha(halving: Halving) -> ASHAScheduler:
    return ASHAScheduler(
        time_attr=halving.time,
        metric=halving.metric,
        mode="min",
        max_t=halving.most,
        grace_period=halving.grace,
        reduction_factor=halving.reduction,
        # A trial that reaches `most` ends by itself.
        stop_last_trials=False,
    )


class ProgressCallback(Callback):
    """Callback that reports, at each of Tune's steps, how many trials ended, failed and are running."""

    def __init__(self, callback: Callable[[int, int, int], None]) -> None:
        self._callback = callback

    def on_step_end(self, iteration: int, trials: list[Any], **info: Any) -> None:
        """Count the trials by status and report the counts; called by Tune."""
        counts = Counter(trial.status for trial in trials)
        self._callback(counts[Trial.TERMINATED], counts[Trial.ERROR], counts[Trial.RUNNING])


def _read_complete_rows(path: Path) -> list[dict[str, Any]]:
    """Return the rows of a file, none if it does not exist; an incomplete last line is cut off."""
    if not path.exists():
        return []
    text = path.read_text()
    complete = text[: text.rfind("\n") + 1]
    if complete != text:
        path.write_text(complete)
    return [json.loads(line) for line in complete.splitlines()]

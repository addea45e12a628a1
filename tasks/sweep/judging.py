"""Who goes on in a search: Ray's halving, its rungs kept row by row, since Tune's own state does without them."""

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


class Judge(FIFOScheduler):
    """Asynchronous halving of the rows of jobs, in each group by itself. A row is written down before it is judged.

    groups: that of each job by its key, "" of others. path: of the rows that came so far, in their order, so that one
    of the same path decides as it would have gone on: of a kill nothing is lost but rows that had not come, which a
    job that goes on says again (see `jobs.report`). A row that is said again is not judged again.
    """

    def __init__(self, halving: Halving, path: Path, groups: Mapping[str, str] = MappingProxyType({})) -> None:
        super().__init__()
        self.stopped: set[str] = set()  # keys
        self.halving, self._path = halving, path
        self._groups, self._halvings = groups, {name: _asha(halving) for name in {"", *groups.values()}}
        self._heard: dict[str, set[float]] = {}  # key -> times of its rows
        for row in _whole_lines(path):
            self._judge(row.pop("key"), row)

    def on_trial_result(self, tune_controller: Any, trial: Any, result: Mapping[str, Any]) -> str:
        """What Tune asks of each row that a trial reports."""
        return self.hear(trial.config["key"], result)

    def hear(self, key: str, result: Mapping[str, Any]) -> str:
        """STOP or CONTINUE for the job of this key; nothing else of the result than time and metric counts."""
        row = {name: result[name] for name in (self.halving.time, self.halving.metric) if name in result}
        if key not in self.stopped and len(row) == 2 and row[self.halving.time] not in self._heard.get(key, ()):
            with self._path.open("a") as file:
                file.write(json.dumps({"key": key, **row}) + "\n")
            self._judge(key, row)
        return str(self.STOP if key in self.stopped else self.CONTINUE)

    def knows(self, key: str) -> bool:
        """Whether a row of this job has come."""
        return key in self._heard

    def _judge(self, key: str, row: Mapping[str, Any]) -> None:
        asha = self._halvings[self._groups.get(key, "")]
        trial = SimpleNamespace(trial_id=key)  # Tune's own ids are others in each run
        if key not in self._heard:
            asha.on_trial_add(None, trial)
        self._heard.setdefault(key, set()).add(row[self.halving.time])
        if asha.on_trial_result(None, trial, dict(row)) == self.STOP:
            self.stopped.add(key)


def _asha(halving: Halving) -> ASHAScheduler:
    return ASHAScheduler(
        time_attr=halving.time,
        metric=halving.metric,
        mode="min",
        max_t=halving.most,
        grace_period=halving.grace,
        reduction_factor=halving.reduction,
        stop_last_trials=False,  # a trial that got so far is let to its own end
    )


class Teller(Callback):
    """Tells how many of the trials have ended, have failed and run, at each of Tune's steps."""

    def __init__(self, tell: Callable[[int, int, int], None]) -> None:
        self._tell = tell

    def on_step_end(self, iteration: int, trials: list[Any], **info: Any) -> None:
        """What Tune calls."""
        found = Counter(trial.status for trial in trials)
        self._tell(found[Trial.TERMINATED], found[Trial.ERROR], found[Trial.RUNNING])


def _whole_lines(path: Path) -> list[dict[str, Any]]:
    """Rows of a file, which loses what a kill left of a line; none where there is no file."""
    if not path.exists():
        return []
    text = path.read_text()
    whole = text[: text.rfind("\n") + 1]
    if whole != text:
        path.write_text(whole)
    return [json.loads(line) for line in whole.splitlines()]

"""Changes of a params file whose predicted cost exceeds a budget."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tsfmscope.stages.pipeline.costs import Cost, Settings, predict_costs
from tsfmscope.stages.pipeline.planned_cells import PlannedCell
from tsfmscope.tasks.speed import Speed

# Smallest value of a key that is proposed.
LEAST = 16


@dataclass(frozen=True)
class Budget:
    """Largest bytes on the disk and seconds with all workers; None: no limit."""

    bytes: float | None = None
    seconds: float | None = None

    def admits(self, total: Total) -> bool:
        """Return whether a total is within the budget."""
        limits = ((total.bytes, self.bytes), (total.seconds, self.seconds))
        return all(limit is None or value <= limit for value, limit in limits)


@dataclass(frozen=True)
class Workers:
    """Processes that run models, and processes that run `geometry`, at the same time."""

    models: int
    geometry: int


@dataclass(frozen=True)
class Total:
    """Sums over stages and models: bytes on the disk, and seconds with all workers."""

    bytes: float
    seconds: float

    @classmethod
    def of(cls, rows: Sequence[Cost], workers: Workers) -> Total:
        """Return the totals of the rows of `predict_costs`; stages run one after the other."""
        seconds = (row.seconds / (workers.geometry if row.stage == "geometry" else workers.models) for row in rows)
        return cls(sum(row.bytes for row in rows), sum(seconds))


@dataclass(frozen=True)
class Change:
    """Change of a key of params.yaml that brings one limit within the budget, and the cost after it.

    limit: bytes or seconds.
    """

    limit: str
    key: str
    value: int | list[str]
    total: Total


@dataclass(frozen=True)
class Prediction:
    """Inputs of `predict_costs` and the number of workers."""

    cells: Sequence[PlannedCell]
    settings: Settings
    device: Speed
    core: Speed
    workers: Workers

    def rows(self) -> list[Cost]:
        """Return the predicted rows."""
        return predict_costs(self.cells, self.settings, self.device, self.core)

    def total(self) -> Total:
        """Return the predicted totals."""
        return Total.of(self.rows(), self.workers)


def find_changes(prediction: Prediction, budget: Budget) -> Iterator[Change]:
    """Yield changes for each limit that is exceeded; each change alone is enough for its limit."""
    total = prediction.total()
    for limit, single in (("bytes", Budget(bytes=budget.bytes)), ("seconds", Budget(seconds=budget.seconds))):
        if not single.admits(total):
            yield from _smaller_values(prediction, single, limit)
            if limit == "seconds":
                yield from _more_workers(prediction, single)
            yield from _fewer_models(prediction, single, limit)


def _smaller_values(prediction: Prediction, budget: Budget, limit: str) -> Iterator[Change]:
    """Yield the largest value of each number of params.yaml with which the cost is within the budget."""
    most_series = max((planned.series for planned in prediction.cells if planned.is_limited), default=0)
    for key, name, present in (
        ("embeddings.rows", "rows", prediction.settings.rows),
        ("datasets.max_series", "max_series", most_series),
    ):
        found = _largest(prediction, budget, name, present)
        if found is not None:
            yield Change(limit, key, *found)


def _largest(prediction: Prediction, budget: Budget, name: str, present: int) -> tuple[int, Total] | None:
    """Return the largest value, to 2 %, of a setting within the budget, and its cost; None if none is.

    Values from LEAST to `present` are tried.
    """

    def total(value: int) -> Total:
        smaller: dict[str, Any] = {name: value}
        return replace(prediction, settings=replace(prediction.settings, **smaller)).total()

    low, high = LEAST, present
    if high <= low or not budget.admits(total(low)):
        return None
    while high - low > max(1, low // 64):
        middle = (low + high) // 2
        low, high = (middle, high) if budget.admits(total(middle)) else (low, middle)
    return low, total(low)


def _more_workers(prediction: Prediction, budget: Budget) -> Iterator[Change]:
    """Yield the number of workers with which the seconds are within the budget."""
    factor = prediction.total().seconds / (budget.seconds or math.inf)
    workers = prediction.workers
    more = Workers(math.ceil(factor * workers.models), math.ceil(factor * workers.geometry))
    yield Change("seconds", "resources.actors", more.models, replace(prediction, workers=more).total())


def _fewer_models(prediction: Prediction, budget: Budget, limit: str) -> Iterator[Change]:
    """Yield the models to leave out, the most expensive ones first; nothing if one alone exceeds the budget."""
    kept, dropped = prediction, []
    shares = _sum_by_model(prediction.rows(), limit)
    for model in sorted(shares, key=shares.__getitem__, reverse=True)[:-1]:
        dropped.append(model)
        kept = replace(kept, cells=[planned for planned in kept.cells if planned.cell.model != model])
        if budget.admits(total := kept.total()):
            yield Change(limit, "models", dropped, total)
            return


def _sum_by_model(rows: Sequence[Cost], limit: str) -> dict[str, float]:
    sums: dict[str, float] = {}
    for row in rows:
        sums[row.model] = sums.get(row.model, 0.0) + float(getattr(row, limit))
    return sums

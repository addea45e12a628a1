"""Predicted costs of `tsfmscope plan`: the tables by model and stage, the document, and the sentences on a budget."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from tsfmscope.stages.cli.output import print_table
from tsfmscope.stages.config.params import Params
from tsfmscope.stages.pipeline.budgets import Budget, Change, Prediction, Total, Workers, find_changes
from tsfmscope.stages.pipeline.costs import Cost, Settings
from tsfmscope.stages.pipeline.planned_cells import plan_cells
from tsfmscope.tasks.speed import Speed, gpu_speed, measure_core

COLUMNS = ("cells", "rows", "hours", "peak memory, GB", "GPU memory, GB", "files, GB")


@dataclass(frozen=True)
class PredictedCosts:
    """Predicted rows and totals of a params file, and the changes that a budget asks for.

    device: what runs the models. workers: processes at the same time. unknown: model or data set -> why its cost is not
    predicted.
    """

    device: Speed
    core: Speed
    workers: Workers
    rows: Sequence[Cost]
    total: Total
    unknown: Mapping[str, str]
    is_within: bool
    changes: Sequence[Change]


def predict(params: Params, gpu: str | None, budget: Budget) -> PredictedCosts:
    """Predict the costs of a params file on a device, and the changes that a budget asks for."""
    plan = plan_cells(params)
    cores = max(1, int((os.cpu_count() or 1) / params.resources.cpus_per_actor))
    actors = min(cores, params.resources.actors or cores)
    core = measure_core(threads=actors)
    workers = Workers(actors if gpu is None else 1, actors)
    device = core if gpu is None else gpu_speed(gpu)
    prediction = Prediction(plan.cells, Settings.of(params), device, core, workers)
    rows, total = prediction.rows(), prediction.total()
    return PredictedCosts(
        device, core, workers, rows, total, plan.unknown, budget.admits(total), list(find_changes(prediction, budget))
    )


def cost_document(costs: PredictedCosts) -> dict[str, Any]:
    """Return the predicted costs as plain data; seconds of rows are those of one worker, of totals of all."""
    return {
        "device": costs.device.name,
        "multiply_adds_per_second": costs.device.multiply_adds,
        "workers": asdict(costs.workers),
        "rows": [asdict(row) for row in costs.rows],
        "total": asdict(costs.total),
        "unknown": dict(costs.unknown),
        "is_within_budget": costs.is_within,
        "changes": [asdict(change) for change in costs.changes],
    }


def show_costs(costs: PredictedCosts) -> None:
    """Print one table of models and one of stages; hours are those of one worker."""
    device = "one core" if not costs.device.is_gpu else f"one {costs.device.name}, geometry on one core"
    for name in ("model", "stage"):
        groups: dict[str, list[Cost]] = {}
        for row in costs.rows:
            groups.setdefault(getattr(row, name), []).append(row)
        # A model has the same cells in several stages.
        count = sum if name == "stage" else max
        lines = [[key, count(row.cells for row in rows), *_summary(rows)] for key, rows in groups.items()]
        print_table(f"predicted cost by {name}, {device}", [name, *COLUMNS], lines)


def _summary(rows: Sequence[Cost]) -> list[float | int | None]:
    device = [row.device_bytes for row in rows if row.device_bytes is not None]
    return [
        sum(row.rows for row in rows),
        sum(row.seconds for row in rows) / 3600,
        max(row.peak_bytes for row in rows) / 1e9,
        max(device) / 1e9 if device else None,
        sum(row.bytes for row in rows) / 1e9,
    ]


def cost_lines(costs: PredictedCosts) -> Iterator[str]:
    """Yield the total, what is not predicted, and one line per change that a budget asks for."""
    models, geometry = costs.workers.models, costs.workers.geometry
    workers = f"{models} at a time" if models == geometry else f"{models} at a time, of geometry {geometry}"
    yield f"total, jobs {workers}: {_describe(costs.total)}; other stages are not predicted"
    for name, reason in costs.unknown.items():
        yield f"not predicted: {name}: {reason}"
    for limit, name in (("bytes", "files"), ("seconds", "time")):
        changes = [change for change in costs.changes if change.limit == limit]
        if changes:
            yield f"over the budget of {name}; each of these changes alone is enough for it:"
        for change in changes:
            yield f"  {_sentence(change)} -> {_describe(change.total)}"
    if not costs.is_within and not costs.changes:
        yield "over the budget; no single change is enough: leave out models and data sets"


def _sentence(change: Change) -> str:
    if isinstance(change.value, list):
        return f"models: leave out {', '.join(change.value)}"
    return f"{change.key}: {change.value}"


def _describe(total: Total) -> str:
    return f"{total.seconds / 3600:.3g} hours, {total.bytes / 1e9:.3g} GB of files"

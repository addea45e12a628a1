"""Stage theory: theorems of Yu et al. 2026 at random instances, and Appendix J; no job without the block `theory`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from stages.config.params import Params
from stages.planning.sweeping import PlannedJob, open_store, read_nothing, sweep
from tasks.job import Job, Task
from tasks.theory import BoundsSpec, PointsSpec
from tsfmscope.theory.experiments import STATEMENTS

BOUNDS = Task("theory_bounds", 2, "tasks.theory:bounds", table="theory")
POINTS = Task("theory_points", 2, "tasks.theory:points", table="theory")


def main(params: Params) -> None:
    """Write data/theory."""
    with open_store("theory") as out:
        sweep(out, plan(params), params, read_nothing)


def plan(params: Params) -> Iterator[PlannedJob]:
    """Yield one job per experiment and seed, and one per statement and batch of random instances."""
    block = params.theory
    if block is None:
        return
    options: dict[str, Any] = {name: getattr(block, name).model_dump() for name in ("rank", "width", "sketch", "flow")}
    for experiment, entries in (options | {"repeated": {}, "rates": {}}).items():
        for number in range(block.seeds):
            extra = {"spectra": number == 0} if experiment in ("sketch", "flow") else {}
            points = PointsSpec(experiment=experiment, seed=params.seed + number, options=entries | extra)
            yield PlannedJob(Job(POINTS, points.to_dict()))
    for statement in STATEMENTS:
        for first in range(0, block.instances, block.batch):
            count = min(block.batch, block.instances - first)
            bounds = BoundsSpec(statement=statement, seed=params.seed, first=first, count=count)
            yield PlannedJob(Job(BOUNDS, bounds.to_dict()))

"""The rank paper's theorems at random instances, and its Appendix J; no model and no data is needed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from stages.params import Params
from stages.sweeping import Planned, nothing, opened, sweep
from tasks.sweep.jobs import Job, Task
from tasks.theory.statements import STATEMENTS

BOUNDS = Task("theory_bounds", 1, "tasks.theory.entry:bounds", table="theory")
POINTS = Task("theory_points", 1, "tasks.theory.entry:points", table="theory")


def main(params: Params) -> None:
    """Write data/theory."""
    with opened("theory", ["theory"], params) as out:
        sweep(out, plan(params), params, nothing)


def plan(params: Params) -> Iterator[Planned]:
    """A job a seed of every experiment, and one a batch of instances of every statement."""
    block = params.theory
    options: dict[str, Any] = {name: getattr(block, name).model_dump() for name in ("rank", "width", "sketch", "flow")}
    for experiment, given in (options | {"repeated": {}, "rates": {}}).items():
        for number in range(block.seeds):
            pictured = {"spectra": number == 0} if experiment in ("sketch", "flow") else {}
            spec = {"experiment": experiment, "seed": params.seed + number, "options": given | pictured}
            yield Planned(Job(POINTS, spec))
    for statement in STATEMENTS:
        for first in range(0, block.instances, block.batch):
            count = min(block.batch, block.instances - first)
            spec = {"statement": statement, "seed": params.seed, "first": first, "count": count}
            yield Planned(Job(BOUNDS, spec))

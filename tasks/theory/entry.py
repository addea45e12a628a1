"""The sweep's entries: a batch of instances of one statement, or one seed of one experiment, as rows of `theory`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from tasks.theory.experiments import EXPERIMENTS
from tasks.theory.sides import Side
from tasks.theory.statements import instance

if TYPE_CHECKING:
    from tasks.sweep.jobs import Job, Result


def bounds(job: Job, data: None, model: None) -> Result:
    """A row a part and form of a statement and instance. job.spec: statement, seed, `first` number and how many."""
    from tasks.sweep.jobs import Result

    spec = job.spec
    numbers = range(spec["first"], spec["first"] + spec["count"])
    return Result(
        [
            instance_row(spec["statement"], part, spec["seed"], number, side)
            for number in numbers
            for part, side in instance(spec["statement"], spec["seed"], number)
        ]
    )


def points(job: Job, data: None, model: None) -> Result:
    """The rows of one seed of an experiment. job.spec: experiment, seed, and `options`, the experiment's keywords."""
    from tasks.sweep.jobs import Result

    rows = EXPERIMENTS[job.spec["experiment"]](job.spec["seed"], **job.spec["options"])
    return Result(
        [{**row, "kind": "point", "seed": job.spec["seed"], "setting": _text(row["setting"])} for row in rows]
    )


def instance_row(statement: str, part: str, seed: int, number: int, side: Side) -> dict[str, Any]:
    """A row of `theory`; `statement`, `seed` and `instance` give it again: `statements.instance`."""
    setting = {"statement": statement, **side.setting}
    return {
        "experiment": part, "kind": "instance", "form": side.form, "seed": seed, "instance": number, "x": side.x,
        "y": side.y, "side": side.side, "bound": side.bound, "floor": side.floor, "holds": side.holds, "fitted": False,
        "heads": side.setting.get("heads"), "setting": _text(setting),
    }  # fmt: skip


def _text(setting: Any) -> str:
    return json.dumps(setting, sort_keys=True, separators=(",", ":"), allow_nan=False)

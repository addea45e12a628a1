"""Job entry points of the sweep for the theory checks; they return rows of the table `theory`.

A job is a batch of instances of one statement, or one seed of one experiment.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from tsfmscope.tasks.theory.bound_check import BoundCheck
from tsfmscope.tasks.theory.experiments import EXPERIMENTS
from tsfmscope.tasks.theory.statements import instance

if TYPE_CHECKING:
    from tsfmscope.tasks.job import Job, Result


def bounds(job: Job, data: None, model: None) -> Result:
    """Return one row per part, form and instance of a statement.

    job.spec: statement, seed, `first` (number of the first instance) and `count` (number of instances).
    """
    from tsfmscope.tasks.job import Result

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
    """Return the rows of one seed of an experiment.

    job.spec: experiment, seed, and `options`, the keyword arguments of the experiment.
    """
    from tsfmscope.tasks.job import Result

    rows = EXPERIMENTS[job.spec["experiment"]](job.spec["seed"], **job.spec["options"])
    return Result(
        [{**row, "kind": "point", "seed": job.spec["seed"], "setting": _text(row["setting"])} for row in rows]
    )


def instance_row(statement: str, part: str, seed: int, number: int, side: BoundCheck) -> dict[str, Any]:
    """Return a row of `theory` for one side of a bound.

    `statements.instance` reproduces it from the columns `statement` (within `setting`), `seed` and
    `instance`.
    """
    setting = {"statement": statement, **side.setting}
    return {
        "experiment": part, "kind": "instance", "form": side.form, "seed": seed, "instance": number, "x": side.x,
        "y": side.y, "side": side.side, "bound": side.bound, "floor": side.floor, "holds": side.holds, "fitted": False,
        "heads": side.setting.get("heads"), "setting": _text(setting),
    }  # fmt: skip


def _text(setting: Any) -> str:
    return json.dumps(setting, sort_keys=True, separators=(",", ":"), allow_nan=False)

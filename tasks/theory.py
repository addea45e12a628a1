"""Job entry points of the sweep for the theory checks; they return rows of the table `theory`.

A job is a batch of instances of one statement, or one seed of one experiment.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tasks.job import Job, Result
from tasks.parts import Spec
from tsfmscope.theory.experiments import EXPERIMENTS, instance

if TYPE_CHECKING:
    from tsfmscope.theory.instances import BoundCheck


class BoundsSpec(Spec):
    """Spec of `bounds`. first: number of the first instance. count: number of instances."""

    statement: str
    seed: int
    first: int
    count: int


class PointsSpec(Spec):
    """Spec of `points`. options: keyword arguments of the experiment."""

    experiment: str
    seed: int
    options: Mapping[str, Any]


def bounds(job: Job, data: None, model: None) -> Result:
    """Return one row per part, form and instance of a statement."""
    spec = BoundsSpec.from_job(job)
    return Result(
        [
            instance_row(spec.statement, part, spec.seed, number, side)
            for number in range(spec.first, spec.first + spec.count)
            for part, side in instance(spec.statement, spec.seed, number)
        ]
    )


def points(job: Job, data: None, model: None) -> Result:
    """Return the rows of one seed of an experiment."""
    spec = PointsSpec.from_job(job)
    rows = EXPERIMENTS[spec.experiment](spec.seed, **spec.options)
    return Result([{**row, "kind": "point", "seed": spec.seed, "setting": _text(row["setting"])} for row in rows])


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

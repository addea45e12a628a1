"""Windows that no checkpoint was pretrained on, and the skill that a checkpoint has there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tasks.compression.corpus import HELD_OUT
from tasks.forecasting.skill import skill_row
from tasks.models.base import QUANTILES
from tasks.series.bundled import BUNDLED, load_bundled
from tasks.series.catalog import CATALOG
from tasks.series.kernelsynth import SYNTHETIC, kernelsynth_series, synthetic_set
from tasks.series.types import Series, Windows
from tasks.series.windows import spread_windows
from tasks.sweep.jobs import Job, Result

if TYPE_CHECKING:
    from tasks.models.base import Forecaster

UNSEEN = 7_919  # added to a recipe's seed, so that no series of the pool is drawn again
SYNTHETIC_HORIZON = 64  # isotropy.md, Table 4
NAMED_SHARE = 0.4  # of the windows come from the ten named synthetic sets, the rest from random compositions


def measure_skill(job: Job, data: None, model: Forecaster) -> Result:
    """The `skill` row of a checkpoint. job.spec: model, recipe (its SHA-256), seed, and the block checkpoints.skill."""
    block = job.spec["skill"]
    batches = unseen_windows(block["windows"], context=block["context"], seed=job.spec["seed"])
    row = skill_row(
        model,
        batches,
        levels=QUANTILES,
        samples=block["samples"],
        seed=job.spec["seed"],
        bootstrap=block["bootstrap"],
    )
    return Result([{"model": job.spec["model"], "recipe": job.spec["recipe"], **row}])


def unseen_windows(count: int, *, context: int, seed: int) -> list[Windows]:
    """At least `count` windows: random KernelSynth compositions, the ten named sets, and the bundled series' last 20 %.

    One Windows a data set; the bundled series add what they have, with targets in the part that was held out.
    """
    each = -(-int(count * NAMED_SHARE) // len(SYNTHETIC))
    series = {"kernelsynth": kernelsynth_series(count - each * len(SYNTHETIC), seed + UNSEEN)}
    for name, one in SYNTHETIC.items():
        series[name] = synthetic_set(name, one.kernel(), count=each, seed=seed + UNSEEN)
    found = [_cut(one, context, SYNTHETIC_HORIZON, len(one), None) for one in series.values()]
    for name in BUNDLED:
        bundled = load_bundled(name)
        found.append(_cut(bundled, context, CATALOG[name].horizon, 3 * len(bundled), HELD_OUT))
    return found


def _cut(series: list[Series], context: int, horizon: int, count: int, held_out: float | None) -> Windows:
    windows, _ = spread_windows(
        series,
        context=context,
        horizon=horizon,
        count=count,
        min_context=16,
        held_out=held_out,
    )
    return windows

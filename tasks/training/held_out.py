"""Held-out windows, unseen in pretraining, and the skill of a model on them and on a clean sine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tsfmscope.tasks.defaults import HELD_OUT, MIN_CONTEXT
from tsfmscope.tasks.forecasting.sine import sine_error
from tsfmscope.tasks.forecasting.skill import skill_row
from tsfmscope.tasks.job import Job, Result
from tsfmscope.tasks.models.base import QUANTILES
from tsfmscope.tasks.series.catalog import CATALOG
from tsfmscope.tasks.series.files.bundled import BUNDLED, load_bundled
from tsfmscope.tasks.series.synthetic.kernelsynth import SYNTHETIC, kernelsynth_series, synthetic_set
from tsfmscope.tasks.series.types import Series, Windows
from tsfmscope.tasks.series.windows import spread_windows

if TYPE_CHECKING:
    from tsfmscope.tasks.models.base import Forecaster

# added to a recipe's seed, so that no series of the training pool is drawn again
UNSEEN = 7_919
# Shelim et al. 2025, Table 4
SYNTHETIC_HORIZON = 64
# share of the synthetic windows from the ten named sets; the others are of random compositions
NAMED_SHARE = 0.4


def measure_skill(job: Job, data: None, model: Forecaster) -> Result:
    """Measure the `skill` row of a model.

    job.spec: model, recipe (SHA-256 of the training recipe, or null), seed, and the block checkpoints.skill.
    Without a recipe the training data are unknown, so only the sine is forecast and the other columns are
    null.
    """
    block = job.spec["skill"]
    clean = sine_error(model, context=block["context"], samples=block["samples"], seed=job.spec["seed"])
    facts = {name: job.spec[name] for name in ("model", "recipe", "seed")} | {"sine_error": clean}
    if facts["recipe"] is None:
        return Result([facts])
    batches = unseen_windows(block["windows"], context=block["context"], seed=job.spec["seed"])
    row = skill_row(
        model,
        batches,
        levels=QUANTILES,
        samples=block["samples"],
        seed=job.spec["seed"],
        bootstrap=block["bootstrap"],
    )
    return Result([facts | row])


def unseen_windows(count: int, *, context: int, seed: int) -> list[Windows]:
    """Return held-out windows, one Windows per data set.

    `count` windows are synthetic, of random KernelSynth compositions and of the ten named sets. The bundled
    series add as many windows as they have with targets in the last 20 %, which was held out.
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
        min_context=MIN_CONTEXT,
        held_out=held_out,
    )
    return windows

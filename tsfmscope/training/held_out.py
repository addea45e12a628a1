"""Held-out windows, unseen in pretraining, and the skill of a model on them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tsfmscope.defaults import HELD_OUT, MIN_CONTEXT
from tsfmscope.forecasting.skill import skill_row
from tsfmscope.models.base import QUANTILES
from tsfmscope.series.catalog import CATALOG
from tsfmscope.series.files.bundled import BUNDLED, load_bundled
from tsfmscope.series.synthetic.kernelsynth import SYNTHETIC, kernelsynth_series, synthetic_set
from tsfmscope.series.types import Series, Windows
from tsfmscope.series.windows import spread_windows
from tsfmscope.training.options import SkillOptions

if TYPE_CHECKING:
    from tsfmscope.models.base import Forecaster

# Added to a recipe's seed, so that no series of the training pool is drawn again
SEED_OFFSET = 7_919
# Steps. Source: Shelim et al. 2025, Table 4.
SYNTHETIC_HORIZON = 64
# Share of the synthetic windows from the ten named sets; the others are of random compositions.
NAMED_SHARE = 0.4


def measure_skill(model: Forecaster, options: SkillOptions, *, seed: int) -> dict[str, Any]:
    """Measure the skill of a pretrained model on unseen windows: columns of `skill`."""
    batches = unseen_windows(options.windows, context=options.context, seed=seed)
    row: dict[str, Any] = skill_row(
        model,
        batches,
        levels=QUANTILES,
        samples=options.samples,
        seed=seed,
        bootstrap=options.bootstrap,
    )
    return row


def unseen_windows(count: int, *, context: int, seed: int) -> list[Windows]:
    """Return held-out windows, one Windows per data set.

    `count` windows are synthetic, of random KernelSynth compositions and of the ten named sets. The bundled
    series add as many windows as they have with targets in the last 20 %, which was held out.
    """
    per_set = -(-int(count * NAMED_SHARE) // len(SYNTHETIC))
    series = {"kernelsynth": kernelsynth_series(count - per_set * len(SYNTHETIC), seed + SEED_OFFSET)}
    for name, generator in SYNTHETIC.items():
        series[name] = synthetic_set(name, generator.kernel(), count=per_set, seed=seed + SEED_OFFSET)
    batches = [_cut(members, context, SYNTHETIC_HORIZON, len(members), None) for members in series.values()]
    for name in BUNDLED:
        bundled = load_bundled(name)
        batches.append(_cut(bundled, context, CATALOG[name].horizon, 3 * len(bundled), HELD_OUT))
    return batches


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

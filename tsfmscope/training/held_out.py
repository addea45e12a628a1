"""Skill and validation loss of a pretrained model on data that no training reads."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from tsfmscope.defaults import HELD_OUT, MIN_CONTEXT
from tsfmscope.forecasting.skill import skill_row
from tsfmscope.models.base import QUANTILES
from tsfmscope.series.catalog import CATALOG
from tsfmscope.series.files.sources import BUNDLED, load_bundled
from tsfmscope.series.synthetic.kernels import parse_kernel
from tsfmscope.series.synthetic.kernelsynth import kernelsynth_series, synthetic_set
from tsfmscope.series.types import Windows
from tsfmscope.series.windows import spread_windows
from tsfmscope.training.corpora import BatchShape, recipe_corpus
from tsfmscope.training.options import Recipe, SkillOptions

if TYPE_CHECKING:
    from tsfmscope.models.base import Family, Forecaster

# Added to a recipe's seed, so that no series of the training pool is drawn again
SEED_OFFSET = 7_919
# Added to the seed of the study, so that no series of a training with a small seed is drawn again.
VALIDATION_SEED_OFFSET = 104_729
# Steps. Source: Shelim et al. 2025, Table 4.
SYNTHETIC_HORIZON = 64
# Share of the synthetic windows from the ten named sets; the others are of random compositions.
NAMED_SHARE = 0.4


def measure_skill(model: Forecaster, options: SkillOptions, *, seed: int) -> dict[str, Any]:
    """Measure the skill of a pretrained model on unseen windows: columns of `skill`."""
    batches = unseen_windows(options.windows, context=options.context, seed=seed)
    return skill_row(model, batches, levels=QUANTILES, samples=options.samples, seed=seed, bootstrap=options.bootstrap)


def unseen_windows(count: int, *, context: int, seed: int) -> list[Windows]:
    """Return held-out windows, one Windows per data set.

    `count` windows are synthetic, of random KernelSynth compositions and of the ten named sets. The bundled
    series add as many windows as they have with targets in the last 20 %, which was held out.
    """
    kernels = {name: entry.kernel for name, entry in CATALOG.items() if entry.kernel is not None}
    per_set = -(-int(count * NAMED_SHARE) // len(kernels))
    series = {"kernelsynth": kernelsynth_series(count - per_set * len(kernels), seed + SEED_OFFSET)}
    for name, kernel in kernels.items():
        series[name] = synthetic_set(name, parse_kernel(kernel), count=per_set, seed=seed + SEED_OFFSET)
    cut = partial(spread_windows, context=context, min_context=MIN_CONTEXT)
    batches = [cut(members, horizon=SYNTHETIC_HORIZON, count=len(members))[0] for members in series.values()]
    for name in BUNDLED:
        bundled, horizon = load_bundled(name), CATALOG[name].horizon
        batches.append(cut(bundled, horizon=horizon, count=3 * len(bundled), held_out=HELD_OUT)[0])
    return batches


def validation_loss(family: Family, recipe: Recipe, *, batches: int, seed: int) -> tuple[float, int]:
    """Return the mean loss over batches of the recipe's mixture, and the number of their windows.

    The batches depend on seed and on the recipe's mixture, contexts, horizon and batch size, and not on the recipe's
    seed. So all trainings that differ in nothing else are compared on the same windows. Every context has the largest
    of the recipe's lengths.
    """
    import torch

    corpus = recipe_corpus(recipe.model_copy(update={"seed": seed + VALIDATION_SEED_OFFSET, "phases": []}))
    shape = BatchShape.of(recipe)._replace(contexts=[max(recipe.contexts)], futures=[recipe.horizon])
    family.network.eval()
    losses, counts = [], []
    for number in range(batches):
        batch = corpus.batch(number, shape)
        torch.manual_seed(seed + number)
        with torch.no_grad():
            losses.append(float(family.loss(*map(torch.from_numpy, batch.parts(dated=family.dated)))))
        counts.append(len(batch.context))
    return float(np.average(losses, weights=counts)), sum(counts)

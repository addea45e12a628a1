"""Training corpus of random series (`synthetic.priors`), in phases: plain periodic series first, then rich ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import ClassVar

import numpy as np

from tsfmscope.defaults import RANDOM_SOURCES
from tsfmscope.series.calendar import random_clock
from tsfmscope.series.catalog import Modality
from tsfmscope.series.synthetic.priors import draw_periodic, draw_priors, draw_weekdays
from tsfmscope.training.options import Phase
from tsfmscope.training.windows import Batch, streams

# Share of the windows whose context starts later than the window, as that of a short series does.
SHORTER = 0.25
# A future step further than this from the context's mean, in its standard deviations, is hidden: the loss of
# one such step can be a thousand times that of the whole batch.
FARTHEST = 15.0
# Sources whose shares every recipe's draw of counts includes, also where they are 0.
FIRST_SOURCES = ("priors", "periodic")
# Largest number of steps that a window's series has before it; it only changes the dates.
EARLIER = 5_000


class PriorsCorpus:
    """Corpus whose training batch of any step can be drawn again, from the step number alone.

    No series is drawn twice. Until step phases[0].until, the mixture, the batch size and the contexts (the last two
    if given) of that phase replace those of the recipe, and so on for the next phases. phases[0].periods, if not
    None, are the only periods of its plain periodic series.
    """

    # Kind of data of the values of a batch.
    modality: ClassVar[Modality] = "series"

    def __init__(self, mixture: Mapping[str, float], phases: Sequence[Phase], seed: int) -> None:
        self.mixture, self.phases, self.seed = mixture, phases, seed

    def batch(
        self, step: int, *, steps: int, contexts: Sequence[int], futures: Sequence[int], horizon: int, min_past: int
    ) -> Batch:
        """Draw B = steps // (C + horizon) windows, at least one, with a context of C steps.

        C is drawn from `contexts`. Only the first F steps of the future are shown, with F drawn from `futures`;
        the others are NaN. Every context has at least `min_past` steps, some of which may be gaps.
        """
        rng, clocks = streams(self.seed, step)
        phase = next((phase for phase in self.phases if step <= phase.until), None)
        mixture, steps = (phase.mixture, phase.batch_steps or steps) if phase else (self.mixture, steps)
        contexts = (phase.contexts if phase else None) or contexts
        context, n_shown = (int(rng.choice(np.asarray(lengths))) for lengths in (contexts, futures))
        count = max(1, steps // (context + horizon))
        # Later sources without a share take no random number, so that they change no batch of older recipes.
        sources = [source for source in RANDOM_SOURCES if mixture.get(source) or source in FIRST_SOURCES]
        counts = rng.multinomial(count, [mixture.get(source, 0.0) for source in sources])
        draw: dict[str, Callable[[np.random.Generator, int, int], np.ndarray]] = {
            "priors": draw_priors,
            "periodic": partial(draw_periodic, periods=phase.periods if phase else None),
            "weekdays": draw_weekdays,
        }
        parts = [draw[source](rng, int(n), context + horizon) for source, n in zip(sources, counts, strict=True) if n]
        values = np.concatenate(parts)
        values[:, context + n_shown :] = np.nan
        for row in np.flatnonzero(rng.random(count) < SHORTER):
            values[row, : rng.integers(0, max(1, context - min_past))] = np.nan
        before, after = np.ascontiguousarray(values[:, :context]), np.ascontiguousarray(values[:, context:])
        hide_far_steps(before, after)
        origins = rng.integers(context, context + EARLIER, count).tolist()
        return Batch(before, after, [random_clock(clocks) for _ in range(count)], origins)


def hide_far_steps(context: np.ndarray, future: np.ndarray) -> None:
    """Hide future steps more than FARTHEST standard deviations from the mean of their context, in place, as NaN.

    Nothing of the future is shown after a context that is constant or has no value, since it has no scale.
    context: [B, C]. future: [B, H].
    """
    observed = ~np.isnan(context)
    count = np.maximum(observed.sum(axis=1, keepdims=True), 1)
    values = np.where(observed, context, 0).astype(np.float64)
    mean = values.sum(axis=1, keepdims=True) / count
    spread = np.sqrt((np.where(observed, context - mean, 0) ** 2).sum(axis=1, keepdims=True) / count)
    has_scale = spread > 1e-4 * np.abs(values).max(axis=1, keepdims=True)
    future[(np.abs(future - mean) > FARTHEST * spread) | ~has_scale] = np.nan

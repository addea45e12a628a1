"""Random series with the features of real ones, for pretraining.

A series is a sum of standardised components (two seasonal patterns, trend, random walk, noise) that passes
through a link (identity, exponential, rectified, logistic, counts, cumulative) and is then disturbed (level
shifts, spikes, rounding, gaps). The shares and ranges are ours; nothing is fitted to a data set.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float32

from tsfmscope.series.synthetic.priors.components import (
    Rows,
    draw_periods,
    noise,
    period_levels,
    random_periods,
    random_walk,
    seasonal_pattern,
    slow_noise,
    standardise,
    trend,
)
from tsfmscope.series.synthetic.priors.links import disturb, observe
from tsfmscope.series.synthetic.random_streams import Streams

# Bounds of the periods of plain periodic series, in steps.
PLAIN_PERIODS = (3.0, 200.0)


def draw_priors(rng: np.random.Generator, count: int, length: int) -> Rows:
    """Draw `count` series of `length` steps, float32 [N, L]; gaps are NaN. The same generator state repeats them."""
    return disturb(rng, observe(rng, _latent(rng, count, length)))


def draw_from_seed(seed: int, length: int) -> Float32[np.ndarray, " step"]:
    """Draw the series of a seed, [L], such as one of the column `seed` of a corpus; gaps are NaN."""
    return np.asarray(draw_priors(Streams().values(seed), 1, length)[0])


def draw_periodic(rng: np.random.Generator, count: int, length: int, periods: Sequence[float] | None = None) -> Rows:
    """Draw plain periodic series with little noise, float32 [N, L].

    A model finds out with them that a season repeats, which on richer series alone takes it much longer. Four
    in ten are sines. periods: periods to choose from; None: log-uniform between PLAIN_PERIODS.
    """
    drawn = rng.choice(np.asarray(periods, float), count) if periods else random_periods(rng, count, *PLAIN_PERIODS)
    values = seasonal_pattern(rng, length, drawn)
    rows = np.flatnonzero(rng.random(count) < 0.4)
    phase = np.arange(length) / drawn[rows, None] + rng.random((len(rows), 1))
    values[rows] = np.sqrt(2) * np.sin(2 * np.pi * phase)
    size = np.where(rng.random((count, 1)) < 0.3, 0.0, 10 ** rng.uniform(-2.5, -0.7, (count, 1)))
    level = np.where(rng.random((count, 1)) < 0.6, rng.normal(0, 3, (count, 1)), 0.0)
    unit = 10 ** rng.uniform(-2, 4, (count, 1))
    disturbed = values + size * rng.standard_normal((count, length), dtype=np.float32) + level
    return (disturbed * unit).astype(np.float32)


def _latent(rng: np.random.Generator, count: int, length: int) -> Rows:
    """Return the standardised sum of components with log-normal weights; a component may be absent."""
    period, longer = draw_periods(rng, count)
    total = np.zeros((count, length), dtype=np.float32)
    rows, weights = _present(rng, count, 0.75, 0.0)
    short = seasonal_pattern(rng, length, period[rows])
    short *= np.exp(np.where(rng.random((len(rows), 1)) < 0.25, 0.4, 0.0) * slow_noise(rng, len(rows), length, 6))
    total[rows] = weights * short
    rows, weights = _present(rng, count, 0.45, -0.5)
    long = seasonal_pattern(rng, length, longer[rows])
    if len(rows):
        levels = period_levels(rng, length, period[rows], longer[rows])
        long = np.where(rng.random((len(rows), 1)) < 0.5, levels, long)
    # In three series of ten the longer pattern scales the shorter one, as weekends scale a daily profile.
    is_scale = rng.random((len(rows), 1)) < 0.3
    total[rows] = np.where(is_scale, total[rows] * (1 + 0.5 * np.clip(long, -2, 2)), total[rows] + weights * long)
    rows, weights = _present(rng, count, 0.5, -0.2)
    total[rows] += weights * trend(rng, len(rows), length)
    rows, weights = _present(rng, count, 0.3, -0.3)
    total[rows] += weights * random_walk(rng, len(rows), length)
    # Noise relative to the rest; one series of twelve has none.
    size = np.where(rng.random((count, 1)) < 0.08, 0.0, 10 ** rng.uniform(-2, 0.2, (count, 1)))
    return standardise(standardise(total) + size * noise(rng, count, length)).astype(np.float32)


def _present(rng: np.random.Generator, count: int, chance: float, centre: float) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows that have a component, and its log-normal weights, float32 [rows, 1]."""
    rows = np.flatnonzero(rng.random(count) < chance)
    return rows, np.exp(rng.normal(centre, 1.0, (len(rows), 1))).astype(np.float32)

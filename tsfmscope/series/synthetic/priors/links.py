"""From a latent series to what is observed: links (levels, counts, ...) and disturbances (shifts, gaps, ...)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tsfmscope.series.synthetic.priors.components import Rows


def observe(rng: np.random.Generator, latent: Rows) -> Rows:
    """Pass every standardised row through a random link (see LINKS)."""
    kind = rng.choice(len(LINKS), len(latent), p=[share for share, _ in LINKS])
    values = np.empty_like(latent, dtype=np.float32)
    for index, (_, link) in enumerate(LINKS):
        rows = np.flatnonzero(kind == index)
        if len(rows):
            values[rows] = link(rng, latent[rows].astype(np.float64))
    return values


def disturb(rng: np.random.Generator, values: Rows) -> Rows:
    """Return the series with level shifts, spikes, rounding, floors and gaps, each in some series, in random units.

    Gaps are NaN. The unit is log-uniform between 0.01 and 10,000.
    """
    values = values.copy()
    spreads = values.std(axis=1)
    for chance, change in ((0.07, _shift_level), (0.08, _add_spikes), (0.12, _round), (0.04, _cut_below)):
        for row in np.flatnonzero(rng.random(len(values)) < chance):
            change(rng, values[row], float(spreads[row]))
    values *= (10 ** rng.uniform(-2, 4, (len(values), 1))).astype(np.float32)
    for row in np.flatnonzero(rng.random(len(values)) < 0.08):
        _remove(rng, values[row])
    return values


def _identity(rng: np.random.Generator, latent: np.ndarray) -> np.ndarray:
    """Add a level, small or large, to seven series of ten."""
    level = np.where(rng.random((len(latent), 1)) < 0.3, 0.0, 4 * rng.standard_t(2, (len(latent), 1)))
    return latent + level


def _exponential(rng: np.random.Generator, latent: np.ndarray) -> np.ndarray:
    """Make sums products: seasons and noise grow with the level."""
    return np.exp(np.clip(latent * 10 ** rng.uniform(-1.2, 0.2, (len(latent), 1)), -12, 12))


def _rectified(rng: np.random.Generator, latent: np.ndarray) -> np.ndarray:
    """Cut off at zero, as rain or solar power is."""
    return np.maximum(0.0, latent + rng.uniform(-1.2, 1.2, (len(latent), 1)))


def _logistic(rng: np.random.Generator, latent: np.ndarray) -> np.ndarray:
    """Squeeze between 0 and 1, as shares and occupancies are."""
    steepness = 10 ** rng.uniform(-0.3, 0.7, (len(latent), 1))
    return 1 / (1 + np.exp(-np.clip(latent * steepness + rng.normal(0, 1, (len(latent), 1)), -20, 20)))


def _counts(rng: np.random.Generator, latent: np.ndarray) -> np.ndarray:
    """Draw Poisson counts, half of them overdispersed (negative binomial), one in ten with closed steps."""
    count, length = latent.shape
    mean = rng.uniform(np.log(0.05), np.log(200), (count, 1))
    rate = np.exp(np.clip(mean + latent * 10 ** rng.uniform(-1.2, 0.1, (count, 1)), -10, 12))
    rows = np.flatnonzero(rng.random(count) < 0.5)
    shape = 10 ** rng.uniform(-0.5, 1.5, (len(rows), 1))
    rate[rows] *= rng.gamma(shape, 1 / shape, (len(rows), length))
    rows = np.flatnonzero(rng.random(count) < 0.1)
    rate[rows] *= rng.random((len(rows), length)) < rng.uniform(0.1, 0.9, (len(rows), 1))
    return np.asarray(rng.poisson(np.minimum(rate, 1e6)))


def _cumulative(rng: np.random.Generator, latent: np.ndarray) -> np.ndarray:
    """Sum positive increments, as totals since a first day do."""
    increments = np.exp(np.clip(latent * rng.uniform(0.2, 1.5, (len(latent), 1)), -8, 8))
    return np.cumsum(increments, axis=1)


# Links, with the share of the series that pass through each; the shares sum to 1.
LINKS: tuple[tuple[float, Callable[[np.random.Generator, np.ndarray], np.ndarray]], ...] = (
    (0.50, _identity),
    (0.20, _exponential),
    (0.07, _rectified),
    (0.05, _logistic),
    (0.13, _counts),
    (0.05, _cumulative),
)


def _shift_level(rng: np.random.Generator, values: np.ndarray, spread: float) -> None:
    values[rng.integers(len(values)) :] += spread * rng.normal(0, 2)


def _add_spikes(rng: np.random.Generator, values: np.ndarray, spread: float) -> None:
    count = int(rng.integers(1, 2 + len(values) // 60))
    at = rng.integers(0, len(values), count)
    values[at] += spread * rng.exponential(3, count) * rng.choice([-1, 1], count)


def _round(rng: np.random.Generator, values: np.ndarray, spread: float) -> None:
    step = max(spread * 10 ** rng.uniform(-1.5, 0.2), 1e-6)
    values[:] = np.round(values / step) * step


def _cut_below(rng: np.random.Generator, values: np.ndarray, spread: float) -> None:
    np.maximum(values, np.quantile(values, rng.uniform(0.05, 0.5)), out=values)


def _remove(rng: np.random.Generator, values: np.ndarray) -> None:
    """Remove single steps, or one stretch of at most an eighth."""
    if rng.random() < 0.5:
        values[rng.random(len(values)) < rng.uniform(0.01, 0.3)] = np.nan
    else:
        first = int(rng.integers(len(values)))
        values[first : first + int(rng.integers(1, len(values) // 8 + 2))] = np.nan

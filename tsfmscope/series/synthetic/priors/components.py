"""Standardised parts of a random series: seasonal pattern, trend, random walk, noise.

Every function returns one row per series, [N, L], of mean 0 and standard deviation 1 (0 where a row is constant).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Float32

Rows = Float32[np.ndarray, "series step"]
Periods = Float[np.ndarray, " series"]


class Cycle(NamedTuple):
    """A usual seasonal period in steps, the next longer one (0: none), and how often the pair is drawn."""

    period: int
    longer: int
    weight: float


# Periods of common sampling rates: hours, months, days, half-hours, weeks, quarter-hours, quarters, ...
CALENDAR = (
    Cycle(24, 168, 5.0), Cycle(12, 0, 3.0), Cycle(7, 30, 2.0), Cycle(7, 365, 2.0), Cycle(48, 336, 2.5),
    Cycle(52, 0, 2.0), Cycle(96, 672, 1.5), Cycle(4, 0, 1.0), Cycle(5, 21, 1.0), Cycle(144, 0, 1.0),
    Cycle(288, 2016, 1.0), Cycle(60, 1440, 0.5), Cycle(365, 0, 1.0), Cycle(168, 0, 0.5), Cycle(30, 0, 0.5),
    Cycle(2, 0, 0.2), Cycle(3, 0, 0.3), Cycle(6, 0, 0.4), Cycle(10, 0, 0.3),
)  # fmt: skip
# Share of series whose period is not of the calendar but log-uniform between these bounds.
ANY_PERIOD = 0.4
SHORTEST, LONGEST = 2.0, 400.0
# Share of those whose period is a whole number of steps.
WHOLE = 0.7
# Largest number of harmonics of a smooth seasonal pattern.
HARMONICS = 6
# Longest profile: patterns of longer periods repeat only after more steps than a series has.
LONGEST_PROFILE = 2048


def draw_periods(rng: np.random.Generator, count: int) -> tuple[Periods, Periods]:
    """Draw a seasonal period and a longer one for each series, in steps."""
    weights = np.array([cycle.weight for cycle in CALENDAR])
    picked = rng.choice(len(CALENDAR), count, p=weights / weights.sum())
    period, longer = (np.array([cycle[column] for cycle in CALENDAR], dtype=float)[picked] for column in (0, 1))
    free = rng.random(count) < ANY_PERIOD
    period[free] = random_periods(rng, int(free.sum()), SHORTEST, LONGEST)
    longer[free] = 0
    other = longer == 0
    longer[other] = period[other] * rng.integers(2, 15, int(other.sum()))
    return period, longer


def random_periods(rng: np.random.Generator, count: int, shortest: float, longest: float) -> Periods:
    """Draw log-uniform periods in steps, of which the share WHOLE is rounded."""
    periods: Periods = np.exp(rng.uniform(np.log(shortest), np.log(longest), count))
    whole = rng.random(count) < WHOLE
    periods[whole] = np.round(periods[whole])
    return periods


def standardise(values: np.ndarray) -> np.ndarray:
    """Bring every row to mean 0 and standard deviation 1; a constant row becomes 0."""
    centred = values - values.mean(axis=1, keepdims=True)
    spread = centred.std(axis=1, keepdims=True)
    return np.asarray(centred / np.where(spread > 1e-9, spread, 1))


def slow_noise(rng: np.random.Generator, count: int, length: int, knots: int) -> Rows:
    """Return random values of unit variance at `knots` equidistant steps, with straight lines between them."""
    at = np.linspace(0, knots - 1, length)
    left = np.minimum(at.astype(int), knots - 2)
    share = (at - left).astype(np.float32)
    heights = rng.standard_normal((count, knots), dtype=np.float32)
    lines: Rows = heights[:, left] * (1 - share) + heights[:, left + 1] * share
    return lines


def seasonal_pattern(rng: np.random.Generator, length: int, periods: Periods) -> Rows:
    """Return one seasonal pattern per period.

    Half are sums of up to HARMONICS harmonics, three in ten repeat a random profile with one value per step of
    the period, and two in ten are pulses, plateaus or saw teeth. The phase of every tenth drifts slowly.
    """
    count, steps = len(periods), np.arange(length)
    start = rng.random(count)
    phase = steps / periods[:, None] + start[:, None]
    drift = np.where(rng.random(count) < 0.1, rng.uniform(0, 0.05, count), 0)
    phase += np.cumsum(slow_noise(rng, count, length, 8) * drift[:, None], axis=1) / periods[:, None]
    kind = rng.choice(3, count, p=[0.5, 0.3, 0.2])
    pattern = np.empty((count, length), dtype=np.float32)
    for index, draw in enumerate((_harmonics, _profiles, _pulses)):
        rows = np.flatnonzero(kind == index)
        if len(rows):
            pattern[rows] = draw(rng, phase[rows], periods[rows])
    return standardise(pattern)


def period_levels(rng: np.random.Generator, length: int, periods: Periods, longer: Periods) -> Rows:
    """Return levels that are constant within a period and repeat after the longer one, as those of weekdays do.

    In half of the series only some periods differ from the others, as weekends do; elsewhere each has its own level.
    """
    count = len(periods)
    cycle = np.maximum(2, np.round(longer / periods)).astype(int)
    heights = rng.standard_normal((count, int(cycle.max())), dtype=np.float32)
    # The last two of seven periods, or the last one of a shorter cycle.
    is_special = np.arange(heights.shape[1]) % 7 >= np.minimum(5, cycle[:, None] - 1)
    heights = np.where(rng.random((count, 1)) < 0.5, is_special.astype(np.float32), heights)
    start = rng.random((count, 1)) * longer[:, None]
    index = np.floor((np.arange(length) + start) / periods[:, None]).astype(int) % cycle[:, None]
    return standardise(np.take_along_axis(heights, index, axis=1))


def trend(rng: np.random.Generator, count: int, length: int) -> Rows:
    """Return lines, lines with a kink, smooth wandering, logistic growth or exponential decay."""
    time = np.linspace(-1, 1, length)[None]
    kind = rng.choice(5, count, p=[0.35, 0.25, 0.2, 0.1, 0.1])[:, None]
    kinked = np.abs(time - rng.uniform(-1, 1, (count, 1))) + time * rng.normal(0, 1, (count, 1))
    wandering = np.cumsum(slow_noise(rng, count, length, 12), axis=1)
    rate = rng.uniform(2, 12, (count, 1))
    logistic = 1 / (1 + np.exp(-rate * (time - rng.uniform(-0.8, 0.8, (count, 1)))))
    shapes = [np.broadcast_to(time, kinked.shape), kinked, wandering, logistic]
    values = np.select([kind == index for index in range(4)], shapes, np.exp(-rate * (time + 1) / 4))
    sign = rng.choice([-1.0, 1.0], (count, 1))
    signed: Rows = (standardise(values) * sign).astype(np.float32)
    return signed


def random_walk(rng: np.random.Generator, count: int, length: int) -> Rows:
    """Return random walks with drift; one in seven is summed twice, so that its slope walks."""
    walk = np.cumsum(white_noise(rng, count, length) + rng.normal(0, 0.05, (count, 1)), axis=1)
    twice = rng.random(count) < 0.15
    walk[twice] = np.cumsum(walk[twice], axis=1)
    return standardise(walk).astype(np.float32)


def white_noise(rng: np.random.Generator, count: int, length: int) -> Rows:
    """Return independent noise: Gaussian, or in one series of five Student's t with 3 or 5 degrees of freedom."""
    values = rng.standard_normal((count, length), dtype=np.float32)
    rows = np.flatnonzero(rng.random(count) < 0.2)
    if len(rows):
        freedom = rng.choice([3.0, 5.0], (len(rows), 1))
        values[rows] /= np.sqrt(rng.gamma(freedom / 2, 2 / freedom, (len(rows), length)))
    return values


def noise(rng: np.random.Generator, count: int, length: int) -> Rows:
    """Return white noise (55 %), AR(1) noise (25 %) or AR(2) noise with a random period (20 %).

    The size of every fifth changes slowly.
    """
    values = white_noise(rng, count, length)
    order = rng.choice(3, count, p=[0.55, 0.25, 0.2])
    for row in np.flatnonzero(order):
        values[row] = _filter(_autoregression(rng, int(order[row])), values[row])
    rows = np.flatnonzero(rng.random(count) < 0.2)
    values[rows] *= np.exp(0.7 * slow_noise(rng, len(rows), length, 10))
    return standardise(values)


def _autoregression(rng: np.random.Generator, order: int) -> list[float]:
    """Return the filter of AR(1), or of AR(2) with a random damping and a period of 3 to 150 steps."""
    if order == 1:
        return [1.0, -(rng.uniform(0.2, 0.99) if rng.random() < 0.85 else rng.uniform(-0.6, 0))]
    damping = 1 - 10 ** rng.uniform(-2.5, -0.4)
    period = np.exp(rng.uniform(np.log(3), np.log(150)))
    return [1.0, -2 * damping * np.cos(2 * np.pi / period), damping**2]


def _filter(coefficients: list[float], white: np.ndarray) -> np.ndarray:
    """Return the autoregressive series of white noise; the first coefficient is that of the step itself, 1."""
    # Imported only here, because the import can take a second and every stage imports this module.
    from scipy.signal import lfilter

    return np.asarray(lfilter([1.0], coefficients, white))


def _harmonics(rng: np.random.Generator, phase: np.ndarray, periods: Periods) -> np.ndarray:
    count, order = len(phase), np.arange(1, HARMONICS + 1)
    decay = rng.uniform(0.3, 3, (count, 1))
    shape = (count, HARMONICS)
    weights = (rng.standard_normal(shape) + 1j * rng.standard_normal(shape)) / order**decay
    # No harmonic has a period below two steps.
    absent = (order > rng.integers(1, HARMONICS + 1, (count, 1))) | (order > periods[:, None] / 2)
    weights[absent & (order > 1)] = 0
    turn = np.exp(2j * np.pi * phase).astype(np.complex64)
    values, power = np.zeros(phase.shape, dtype=np.float32), turn.copy()
    for weight in weights.T.astype(np.complex64):
        values += (weight[:, None] * power).real
        power *= turn
    return values


def _profiles(rng: np.random.Generator, phase: np.ndarray, periods: Periods) -> np.ndarray:
    """Repeat random values with one value per step of the (rounded) period; most profiles are smoothed."""
    steps = np.clip(np.round(periods), 2, LONGEST_PROFILE).astype(int)
    profiles = rng.standard_normal((len(steps), int(steps.max())), dtype=np.float32)
    memory = np.where(rng.random(len(steps)) < 0.4, 0.0, rng.uniform(0.3, 0.98, len(steps)))
    for row in np.flatnonzero(memory):
        profiles[row] = _filter([1.0, -memory[row]], profiles[row])
    start = (phase[:, 0] % 1 * steps).astype(int)
    index = (np.arange(phase.shape[1]) + start[:, None]) % steps[:, None]
    return np.asarray(np.take_along_axis(profiles, index, axis=1))


def _pulses(rng: np.random.Generator, phase: np.ndarray, periods: Periods) -> np.ndarray:
    """Return half sines or plateaus for a part of every period, or saw teeth."""
    part = phase % 1
    width = np.maximum(rng.uniform(0.05, 0.6, (len(part), 1)), 1.01 / periods[:, None])
    is_smooth = rng.random((len(part), 1)) < 0.5
    pulse = np.where(part < width, np.where(is_smooth, np.sin(np.pi * part / width), 1.0), 0.0)
    return np.where(rng.random((len(part), 1)) < 0.2, part, pulse)

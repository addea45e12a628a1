"""Random series of days whose profile depends on the weekday, as loads, traffic and sales by the hour have."""

from __future__ import annotations

import numpy as np

from tsfmscope.series.synthetic.priors.components import Rows, noise, slow_noise
from tsfmscope.series.synthetic.priors.links import disturb

# Steps per day of common sampling rates, and how often each is drawn: hours, half-hours, two hours, quarter-hours.
STEPS_PER_DAY = {24: 0.6, 48: 0.25, 12: 0.1, 96: 0.05}
# Largest number of peaks of a daily profile.
PEAKS = 3
SATURDAY, SUNDAY = 5, 6


def draw_weekdays(rng: np.random.Generator, count: int, length: int) -> Rows:
    """Draw `count` series of `length` steps with a daily profile that differs on weekends, float32 [N, L].

    Weekends are lower or higher, later, and of another shape; Saturday lies between Friday and Sunday. Some series have
    holidays, which are like Sundays. The level of days wanders, and noise scales with the level. Level shifts, spikes,
    rounding, units and gaps are those of the other priors. The same generator state repeats the series.
    """
    per_day = rng.choice(list(STEPS_PER_DAY), count, p=list(STEPS_PER_DAY.values()))
    step = np.arange(length) + rng.integers(0, per_day)[:, None]
    at, day = step % per_day[:, None], step // per_day[:, None]
    day -= day[:, :1]
    weekday, n_days = (day + rng.integers(0, 7, (count, 1))) % 7, int(day.max()) + 1
    # Some days are as Sundays in four series of ten.
    chance = np.where(rng.random(count) < 0.4, 0.04, 0.0)
    is_holiday = rng.random((count, n_days)) < chance[:, None]
    weekday = np.where(np.take_along_axis(is_holiday, day, axis=1), SUNDAY, weekday)
    values = _levels(rng, per_day, at, weekday)
    # An autoregressive series of unit variance, one value per day.
    memory, wandering = rng.uniform(0, 0.95, count), rng.standard_normal((count, n_days))
    for number in range(1, n_days):
        wandering[:, number] = memory * wandering[:, number - 1] + np.sqrt(1 - memory**2) * wandering[:, number]
    heights = np.exp(wandering * rng.uniform(0, 0.25, (count, 1)))
    values *= np.take_along_axis(heights, day, axis=1)
    values *= np.exp(slow_noise(rng, count, length, 6) * np.where(rng.random((count, 1)) < 0.3, 0.3, 0.05))
    values *= np.exp(noise(rng, count, length) * 10 ** rng.uniform(-2.5, -0.4, (count, 1)))
    counted = np.flatnonzero(rng.random(count) < 0.15)
    values[counted] = rng.poisson(values[counted] * 10 ** rng.uniform(0, 2, (len(counted), 1)))
    return disturb(rng, values.astype(np.float32))


def _levels(rng: np.random.Generator, per_day: np.ndarray, at: np.ndarray, weekday: np.ndarray) -> np.ndarray:
    """Return the level of every step, at least 0.

    at: number of the step in its day. weekday: 0 to 6; both [N, L].
    """
    count = len(per_day)
    hour = np.arange(per_day.max()) / per_day[:, None]
    working = _bumps(rng, hour)
    delay = np.where(rng.random((count, 1)) < 0.5, rng.uniform(0, 0.12, (count, 1)), 0)
    resting = rng.uniform(0.3, 1.1, (count, 1)) * _bumps(rng, hour - delay)
    # The weekend keeps some or all of the peaks of working days.
    kept = np.where(rng.random((count, 1)) < 0.2, 1.0, rng.uniform(0, 1, (count, 1)))
    resting = kept * rng.uniform(0.2, 1.1, (count, 1)) * working + (1 - kept) * resting
    of_saturday = rng.uniform(0.5, 1, (count, 1))
    share = np.select([weekday == SATURDAY, weekday == SUNDAY], [of_saturday, np.ones((count, 1))], 0.0)
    scale = np.exp(rng.normal(0, 0.06, (count, 7)))
    working, resting = (np.take_along_axis(profile, at, axis=1) for profile in (working, resting))
    base = np.where(rng.random((count, 1)) < 0.2, 0.0, rng.uniform(0, 2, (count, 1)))
    return np.asarray(base + (working + share * (resting - working)) * np.take_along_axis(scale, weekday, axis=1))


def _bumps(rng: np.random.Generator, hour: np.ndarray) -> np.ndarray:
    """Return daily profiles [N, P] of at most PEAKS smooth peaks.

    hour: share of the day. Place, width and height of the peaks are random.
    """
    count = len(hour)
    total = np.zeros(hour.shape)
    n_peaks = rng.integers(1, PEAKS + 1, count)
    for peak in range(PEAKS):
        place, width = rng.random((count, 1)), 10 ** rng.uniform(-1.5, -0.6, (count, 1))
        height = np.exp(rng.normal(0, 0.5, (count, 1))) * (peak < n_peaks)[:, None]
        # A von Mises density is a Gaussian on the circle of hours.
        total += height * np.exp((np.cos(2 * np.pi * (hour - place)) - 1) / (2 * np.pi * width) ** 2)
    return total

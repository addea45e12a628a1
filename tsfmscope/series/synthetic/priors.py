"""Random series with the features of real ones, for pretraining.

A series is a sum of standardised components (two seasonal patterns, trend, random walk, noise) that passes
through a link (identity, exponential, rectified, logistic, counts, cumulative) and is then disturbed (level
shifts, spikes, rounding, gaps). Series of days have a profile that depends on the weekday. The shares and ranges are
ours; nothing is fitted to a data set.

Every component has one row per series, [N, L], of mean 0 and standard deviation 1 (0 where a row is constant).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Float32

from tsfmscope.series.synthetic.kernels import VALUES, Streams

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
    return np.asarray(heights[:, left] * (1 - share) + heights[:, left + 1] * share)


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
    return np.asarray((standardise(values) * sign).astype(np.float32))


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


# Bounds of the periods of plain periodic series, in steps.
PLAIN_PERIODS = (3.0, 200.0)


def draw_priors(rng: np.random.Generator, count: int, length: int) -> Rows:
    """Draw `count` series of `length` steps, float32 [N, L]; gaps are NaN. The same generator state repeats them."""
    return disturb(rng, observe(rng, _latent(rng, count, length)))


def draw_from_seed(seed: int, length: int) -> Float32[np.ndarray, " step"]:
    """Draw the series of a seed, [L], such as one of the column `seed` of a corpus; gaps are NaN."""
    return np.asarray(draw_priors(Streams().of(seed, VALUES), 1, length)[0])


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


def draw_trends(rng: np.random.Generator, count: int, steps: int) -> Float[np.ndarray, "series step"]:
    """Draw smooth trends: exponential, logistic or polynomial growth, or a smooth random walk, with little noise."""
    time = np.linspace(0, 1, steps)
    trends = np.empty((count, steps))
    for row in range(count):
        rate, middle = rng.uniform(0.5, 4), rng.uniform(0.2, 1.2)
        trends[row] = (
            np.exp(rate * time),
            1 / (1 + np.exp(-8 * (time - middle))),
            time ** rng.uniform(0.5, 3),
            np.cumsum(np.cumsum(rng.normal(size=steps))),
        )[rng.integers(4)]
    trends *= rng.choice([-1, 1], size=(count, 1)) / trends.std(axis=1, keepdims=True)
    noise = 10 ** rng.uniform(-3.5, -1.5, size=(count, 1)) * rng.normal(size=(count, steps))
    return trends + rng.uniform(-3, 3, size=(count, 1)) + noise

"""Non-inferiority of a small model to its base: the conditions of a certificate.

A unit is a source of data or, for one table, a series or a group of series. Its log ratio is
d = log(WQL of the small model / WQL of the base).
"""

from __future__ import annotations

import hashlib
import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Float

Outcome = Literal["certified", "not certified", "too few tasks"]
# Losses of a base and of a small model on the same windows.
Losses = tuple[float, float]

# The limits of docs/science.md, Non-inferiority: largest mean ratio, and largest ratio of a task or group.
MARGIN, WORST = 1.02, 1.10
# Coverage of the 80 % interval: the fall in one task with at least VALUES forecast values, and the mean change.
FALL, CHANGE, VALUES = 0.05, 0.02, 200
LEVEL = 0.95
# Normal quantiles of the confidence level (one-sided) and of a power of 80 %.
Z_LEVEL, Z_POWER = 1.645, 0.842
FEWEST_UNITS, RELEASE_UNITS = 10, 30
RESAMPLES = 9999
# A table with more series is tested on groups of them; groups of units whose pooled ratio is limited.
MOST_SERIES, SERIES_GROUPS = 200, 50
GROUPS, FEW_GROUPS = 10, 5


class Condition(NamedTuple):
    """Condition of a certificate: a value, the limit that it must keep, and whether it keeps it."""

    name: str
    value: float
    limit: float
    is_met: bool


class CoverageChange(NamedTuple):
    """Coverage of the 80 % interval in one task, small model minus base, and the number of forecast values."""

    change: float
    n_values: int


@dataclass(frozen=True)
class Certificate:
    """Result of the test.

    mean, sd: of the log ratios of the units; sd is NaN for one unit. t_limit, bootstrap_limit: one-sided upper 95 %
    limits of the mean; infinite for one unit. bootstrap_method: "BCa", or "percentile" where BCa is undefined.
    needed: number of units for a power of 80 % at this sd. conditions: mean ratio, largest ratio, largest fall of
    coverage, mean change of coverage, number of units.
    """

    n_units: int
    mean: float
    sd: float
    t_limit: float
    bootstrap_limit: float
    bootstrap_method: str
    needed: int
    conditions: tuple[Condition, ...]

    @property
    def upper_limit(self) -> float:
        """Larger one of the two upper limits of the mean log ratio."""
        return max(self.t_limit, self.bootstrap_limit)

    @property
    def outcome(self) -> Outcome:
        """Outcome; too few tasks are neither pass nor fail, unless more of them could not change a failure."""
        mean, largest, fall, change, enough = (condition.is_met for condition in self.conditions)
        if not (largest and fall):
            return "not certified"
        if not enough:
            return "too few tasks"
        if mean and change:
            return "certified"
        return "too few tasks" if change and self.n_units < self.needed else "not certified"


def assess(
    log_ratios: Sequence[float] | Float[np.ndarray, " unit"],
    parts: Sequence[float] | Float[np.ndarray, " part"],
    coverages: Sequence[CoverageChange],
    *,
    margin: float = MARGIN,
    worst: float = WORST,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Certificate:
    """Test whether the small model is at most `margin` times worse than its base, over independent units.

    With n units of mean log ratio m and standard deviation s, it is certified if

    1. max(m + t(0.95, n - 1) s / sqrt(n), BCa limit of m) < log(margin),
    2. no log ratio of a part is above log(worst),
    3. coverage falls by more than 0.05 in no task with at least 200 values, and the mean of |change| is below 0.02,
    4. n >= 10.

    Where only 1 fails, the outcome is "too few tasks" if n < ((1.645 + 0.842) s / log(margin))^2, the number for a
    power of 80 % if the true mean is 0.

    Source: the one-sided confidence interval of a non-inferiority trial (ICH E9, section 3.3.2); BCa of Efron
    1987, with scipy.stats.bootstrap; the limits are those of docs/science.md. Deviation: the larger one of two
    limits is taken, because the t limit is too small for skewed ratios and the BCa limit for few of them.

    Equal log ratios have both limits at their value; one log ratio has infinite ones. Infinity is the ratio to a base
    without loss, and fails 1 and 2. NaN and minus infinity raise ValueError.

    Args:
        log_ratios: log(WQL of the small model / WQL of the base), one per unit.
        parts: log ratios that `worst` limits, one per task or group of units.
        coverages: changes of the coverage of the 80 % interval, one per task.
        margin: largest mean ratio, above 1; it must be fixed before the forecasts are scored.
        worst: largest ratio of a part, above 1.
        resamples: number of bootstrap resamples.
        seed: seed of the bootstrap.
    """
    check_ratio("margin", margin)
    check_ratio("worst", worst)
    values, limited = _as_ratios("log_ratios", log_ratios), _as_ratios("parts", parts)
    changes = _as_ratios("coverages", [coverage.change for coverage in coverages])
    n, mean = len(values), float(values.mean())
    is_finite = math.isfinite(mean)
    sd = float(values.std(ddof=1)) if n > 1 and is_finite else math.nan
    bootstrap, method = bootstrap_limit(values, resamples=resamples, seed=seed) if is_finite else (math.inf, "BCa")
    limit = t_limit(values) if is_finite else math.inf
    upper, largest = max(limit, bootstrap), float(limited.max())
    falls = [-coverage.change for coverage in coverages if coverage.n_values >= VALUES]
    fall, change = max([0.0, *falls]), float(np.abs(changes).mean())
    conditions = (
        Condition("mean ratio, upper 95 % limit", to_ratio(upper), margin, upper < math.log(margin)),
        Condition("largest ratio", to_ratio(largest), worst, largest <= math.log(worst)),
        Condition("largest fall of coverage", fall, FALL, fall <= FALL),
        Condition("mean change of coverage", change, CHANGE, change < CHANGE),
        Condition("number of units", n, FEWEST_UNITS, n >= FEWEST_UNITS),
    )
    return Certificate(n, mean, sd, limit, bootstrap, method, needed_units(sd, margin), conditions)


def t_limit(values: Float[np.ndarray, " unit"]) -> float:
    """Return the one-sided upper limit of the mean by Student's t; infinity for one value."""
    from scipy import stats

    n = len(values)
    if n < 2:
        return math.inf
    return float(values.mean() + stats.t.ppf(LEVEL, n - 1) * values.std(ddof=1) / math.sqrt(n))


def bootstrap_limit(
    values: Float[np.ndarray, " unit"], *, resamples: int = RESAMPLES, seed: int = 0
) -> tuple[float, str]:
    """Return the one-sided upper limit of the mean by the BCa bootstrap, and the method.

    Where BCa is undefined, it is the percentile limit; infinity for one value.
    """
    from scipy import stats

    if len(values) < 2:
        return math.inf, "BCa"
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        # scipy warns where BCa is undefined; the method reports it instead.
        warnings.simplefilter("ignore")
        result = stats.bootstrap(
            (values,), np.mean, n_resamples=resamples, confidence_level=LEVEL, alternative="less", method="BCa",
            batch=max(1, 2**20 // len(values)), rng=np.random.default_rng(seed),
        )  # fmt: skip
    high = float(result.confidence_interval.high)
    if math.isfinite(high):
        return high, "BCa"
    return float(np.quantile(result.bootstrap_distribution, LEVEL)), "percentile"


def needed_units(sd: float, margin: float) -> int:
    """Return the number of units, at least 10, that gives a power of 80 %.

    sd: standard deviation of the log ratios; NaN if it is unknown.
    """
    if math.isnan(sd):
        return FEWEST_UNITS
    return max(FEWEST_UNITS, math.ceil(((Z_LEVEL + Z_POWER) * sd / math.log(margin)) ** 2))


def largest_share(n_above: int, n_units: int) -> float:
    """Return the one-sided upper limit of a share of which n_above of n_units were seen.

    The limit of Clopper and Pearson 1934: the quantile LEVEL of Beta(n_above + 1, n_units - n_above). With none
    above it is 1 - (1 - LEVEL)^(1 / n_units), and with all 1.
    """
    from scipy import stats

    return float(stats.beta.ppf(LEVEL, n_above + 1, n_units - n_above)) if n_above < n_units else 1.0


def log_ratio(losses: Losses) -> float:
    """Return log(small / base): 0 where both losses are 0, infinity where only the base's is, -infinity vice versa."""
    base, small = losses
    if base == small:
        return 0.0
    if not base:
        return math.inf
    return math.log(small / base) if small else -math.inf


def assign_groups(names: Sequence[str], count: int, seed: int) -> dict[str, str]:
    """Return name -> group; the names, in the order of a seeded hash, are dealt to `count` groups in turn."""
    order = sorted(names, key=lambda name: hashlib.sha256(f"{seed}:{name}".encode()).digest())
    return {name: f"group {index % count + 1}" for index, name in enumerate(order)}


def split_table(names: Sequence[str], seed: int) -> tuple[dict[str, str], dict[str, str]]:
    """Return series -> unit of a table, and unit -> group of units.

    A unit is a series, or one of 50 groups where there are more than 200 series. Units are put into ten groups, or
    five where there are fewer than 50 units.
    """
    unit_of = assign_groups(names, SERIES_GROUPS, seed) if len(names) > MOST_SERIES else {name: name for name in names}
    units = sorted(set(unit_of.values()))
    return unit_of, assign_groups(units, GROUPS if len(units) >= SERIES_GROUPS else FEW_GROUPS, seed)


def pool(losses: Mapping[str, Losses], group_of: Mapping[str, str]) -> dict[str, Losses]:
    """Return group -> sums of the losses of its members."""
    sums: dict[str, Losses] = {}
    for name, (base, small) in losses.items():
        old = sums.get(group_of[name], (0.0, 0.0))
        sums[group_of[name]] = (old[0] + base, old[1] + small)
    return sums


def to_ratio(log_ratio: float) -> float:
    """Return exp(log_ratio); infinity where it is too large for a float."""
    try:
        return math.exp(log_ratio)
    except OverflowError:
        return math.inf


def check_ratio(name: str, value: float) -> None:
    """Raise ValueError for a limit that is not a finite ratio above 1."""
    if not 1 < value < math.inf:
        raise ValueError(f"{name}: got {value:g}, expected a ratio above 1, such as {MARGIN}")


def _as_ratios(name: str, values: Sequence[float] | np.ndarray) -> Float[np.ndarray, " value"]:
    """Return an argument as an array. Raises ValueError unless it is a list of numbers above minus infinity."""
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 1 or not len(array):
        raise ValueError(f"{name}: got shape {array.shape}, expected one number or more")
    if np.isnan(array).any() or (array == -math.inf).any():
        raise ValueError(f"{name}: got NaN or minus infinity; leave out what has no WQL")
    return array

"""Non-inferiority of a small model to its base: conditions of a certificate over many tasks.

A task is one data set at one horizon. Its log ratio is d = log(WQL of the small model / WQL of the base).
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Float

Outcome = Literal["certified", "not certified", "too few tasks"]

# The limits of docs/science.md, Non-inferiority: largest mean ratio and largest ratio of one task.
MARGIN, WORST = 1.02, 1.10
# Coverages of the 80 % interval must differ by less than two points.
COVERAGE = 0.02
LEVEL = 0.95
# Normal quantiles of the confidence level (one-sided) and of a power of 80 %.
Z_LEVEL, Z_POWER = 1.645, 0.842
FEWEST_TASKS = 10
RESAMPLES = 9999


class Condition(NamedTuple):
    """Condition of a certificate: a value, the limit that it must keep, and whether it keeps it."""

    name: str
    value: float
    limit: float
    is_met: bool


@dataclass(frozen=True)
class Certificate:
    """Result of the test.

    mean, sd: of the log ratios; sd is NaN for one task. t_limit, bootstrap_limit: one-sided upper 95 % limits
    of the mean; infinite for one task. bootstrap_method: "BCa", or "percentile" where BCa is undefined.
    conditions: mean ratio, largest ratio, coverage, number of tasks.
    """

    n_tasks: int
    mean: float
    sd: float
    t_limit: float
    bootstrap_limit: float
    bootstrap_method: str
    conditions: tuple[Condition, ...]

    @property
    def upper_limit(self) -> float:
        """Larger one of the two upper limits of the mean log ratio."""
        return max(self.t_limit, self.bootstrap_limit)

    @property
    def outcome(self) -> Outcome:
        """Outcome; too few tasks are neither pass nor fail, unless one of them is too bad already."""
        mean, largest, coverage, enough = (condition.is_met for condition in self.conditions)
        if not largest:
            return "not certified"
        if not enough:
            return "too few tasks"
        return "certified" if mean and coverage else "not certified"


def assess(
    log_ratios: Sequence[float] | Float[np.ndarray, " task"],
    coverage_changes: Sequence[float] | Float[np.ndarray, " task"],
    *,
    margin: float = MARGIN,
    worst: float = WORST,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Certificate:
    """Test whether the small model is at most `margin` times worse than its base, over independent tasks.

    With n log ratios of mean m and standard deviation s, it is certified if

    1. max(m + t(0.95, n - 1) s / sqrt(n), BCa limit of m) < log(margin),
    2. no log ratio is above log(worst),
    3. the mean change of coverage is below 0.02 in absolute value,
    4. n >= max(10, ((1.645 + 0.842) s / log(margin))^2): a power of 80 % if the true mean is 0.

    Source: the one-sided confidence interval of a non-inferiority trial (ICH E9, section 3.3.2); BCa of Efron
    1987, with scipy.stats.bootstrap; the limits are those of docs/science.md. Deviation: the larger one of two
    limits is taken, because the t limit is too small for skewed ratios and the BCa limit for few of them.

    Equal log ratios have both limits at their value; one log ratio has infinite ones. Infinity and NaN raise
    ValueError.

    Args:
        log_ratios: log(WQL of the small model / WQL of the base), one per task.
        coverage_changes: coverage of the 80 % interval, small model minus base, one per task.
        margin: largest mean ratio, above 1; it must be fixed before the forecasts are scored.
        worst: largest ratio of one task, above 1.
        resamples: number of bootstrap resamples.
        seed: seed of the bootstrap.
    """
    values, changes = _check(log_ratios, coverage_changes, margin, worst)
    n, mean = len(values), float(values.mean())
    sd = float(values.std(ddof=1)) if n > 1 else math.nan
    bootstrap, method = bootstrap_limit(values, resamples=resamples, seed=seed)
    upper = max(limit := t_limit(values), bootstrap)
    largest, change = float(values.max()), abs(float(changes.mean()))
    needed = needed_tasks(sd, margin)
    conditions = (
        Condition("mean ratio, upper 95 % limit", to_ratio(upper), margin, upper < math.log(margin)),
        Condition("largest ratio of a task", to_ratio(largest), worst, largest <= math.log(worst)),
        Condition("mean change of coverage", change, COVERAGE, change < COVERAGE),
        Condition("number of tasks", n, needed, n >= needed),
    )
    return Certificate(n, mean, sd, limit, bootstrap, method, conditions)


def t_limit(values: Float[np.ndarray, " task"], level: float = LEVEL) -> float:
    """Return the one-sided upper limit of the mean by Student's t; infinity for one value."""
    from scipy import stats

    n = len(values)
    if n < 2:
        return math.inf
    return float(values.mean() + stats.t.ppf(level, n - 1) * values.std(ddof=1) / math.sqrt(n))


def bootstrap_limit(
    values: Float[np.ndarray, " task"], *, resamples: int = RESAMPLES, seed: int = 0, level: float = LEVEL
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
            (values,), np.mean, n_resamples=resamples, confidence_level=level, alternative="less", method="BCa",
            batch=max(1, 2**20 // len(values)), rng=np.random.default_rng(seed),
        )  # fmt: skip
    high = float(result.confidence_interval.high)
    if math.isfinite(high):
        return high, "BCa"
    return float(np.quantile(result.bootstrap_distribution, level)), "percentile"


def needed_tasks(sd: float, margin: float) -> int:
    """Return the number of tasks, at least 10, that gives a power of 80 %.

    sd: standard deviation of the log ratios; NaN if it is unknown.
    """
    if math.isnan(sd):
        return FEWEST_TASKS
    return max(FEWEST_TASKS, math.ceil(((Z_LEVEL + Z_POWER) * sd / math.log(margin)) ** 2))


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


def _check(
    log_ratios: Sequence[float] | np.ndarray, changes: Sequence[float] | np.ndarray, margin: float, worst: float
) -> tuple[np.ndarray, np.ndarray]:
    """Return the arguments as arrays. Raises ValueError for arguments that are out of range."""
    check_ratio("margin", margin)
    check_ratio("worst", worst)
    arrays = tuple(np.asarray(values, dtype=np.float64) for values in (log_ratios, changes))
    if arrays[0].ndim != 1 or arrays[0].shape != arrays[1].shape or not len(arrays[0]):
        shapes = " and ".join(str(values.shape) for values in arrays)
        raise ValueError(f"log_ratios, coverage_changes: got shapes {shapes}, expected one number per task in each")
    if not all(np.isfinite(values).all() for values in arrays):
        raise ValueError("log_ratios, coverage_changes: got NaN or infinity; leave out tasks without a WQL")
    return arrays[0], arrays[1]

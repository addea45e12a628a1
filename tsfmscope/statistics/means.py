"""Student's t intervals and tests of means, differences of means and slopes, for units in few independent groups."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

METHODS = {"mean": "Student's t over units", "difference": "Welch's t", "trend": "Student's t of the slope"}
# Power of a test at the effect that is called detectable.
POWER = 0.8
# Spreads over which the power of a t test is averaged.
SPREADS = 400


class Estimate(NamedTuple):
    """Estimate with a t interval and the two-sided p-value of the hypothesis that it is 0.

    Where there is no spread, the interval, p and `detectable` are NaN, and `reason` gives the cause.
    detectable: smallest |estimate| that the test finds with a probability of 80 %, at the observed spread.
    """

    estimate: float
    low: float = math.nan
    high: float = math.nan
    p: float = math.nan
    detectable: float = math.nan
    reason: str | None = None


def mean(values: Float[np.ndarray, " unit"], *, alpha: float = 0.05) -> Estimate:
    """Return the mean of the values, with Student's t over units (n - 1 degrees of freedom).

    NaN and infinite values are left out. Equal values, a single value and no value give p NaN and no
    interval, because they have no spread.
    """
    finite = _finite(values)
    centre = float(finite.mean()) if len(finite) else math.nan
    if len(finite) < 2:
        return Estimate(centre, reason=f"{len(finite)} units; a spread needs 2")
    return _student(centre, float(finite.std(ddof=1)) / math.sqrt(len(finite)), len(finite) - 1, alpha)


def crossed_mean(
    values: Float[np.ndarray, " unit"], rows: Sequence[str], columns: Sequence[str], *, alpha: float = 0.05
) -> Estimate:
    """Return the mean of units that share rows (such as data sets) and columns (such as model families).

    The units of a row depend on each other, and so do those of a column. The variance of the mean is that of Cameron,
    Gelbach and Miller 2011 (Journal of Business & Economic Statistics 29): the variance over rows plus that over
    columns less that over cells, but not less than the larger one of the first two. Degrees of freedom are one less
    than the smaller number of groups. With a single column the variance is that over rows alone, so the result is
    about that column only.

    rows, columns: group of each value. NaN and infinite values are left out. p is NaN and there is no interval with
    fewer than two rows, or where the values have no spread over rows and columns.
    """
    is_finite = np.isfinite(values)
    finite = values[is_finite]
    groups = [np.unique(np.asarray(names, dtype=str)[is_finite], return_inverse=True)[1] for names in (rows, columns)]
    sizes = [int(index.max(initial=-1)) + 1 for index in groups]
    centre = float(finite.mean()) if len(finite) else math.nan
    if sizes[0] < 2:
        return Estimate(centre, reason=f"{sizes[0]} independent groups; a spread needs 2")
    cells = groups[0] * sizes[1] + groups[1]
    by_row, by_column, by_cell = (_variance_of_mean(finite, index) for index in (*groups, cells))
    if sizes[1] < 2:
        return _student(centre, math.sqrt(by_row), sizes[0] - 1, alpha)
    variance = max(by_row, by_column, by_row + by_column - by_cell)
    return _student(centre, math.sqrt(variance), min(sizes) - 1, alpha)


def _variance_of_mean(values: np.ndarray, index: np.ndarray) -> float:
    """Return the variance of the mean if the groups are independent and their units are not (0 for one group)."""
    sums = np.bincount(np.unique(index, return_inverse=True)[1], weights=values - values.mean())
    n = len(sums)
    return float(sums @ sums) / len(values) ** 2 * n / (n - 1) if n > 1 else 0.0


def difference(
    first: Float[np.ndarray, " unit"], second: Float[np.ndarray, " unit"], *, alpha: float = 0.05
) -> Estimate:
    """Return the mean of the first minus the mean of the second, with Welch's t.

    Degrees of freedom are those of Satterthwaite. NaN and infinite values are left out. p is NaN and there is
    no interval where a sample has fewer than two values, or where both samples are constant.
    """
    a, b = _finite(first), _finite(second)
    estimate = float(a.mean() - b.mean()) if len(a) and len(b) else math.nan
    if min(len(a), len(b)) < 2:
        return Estimate(estimate, reason=f"{len(a)} and {len(b)} units; a spread needs 2 of each")
    squares = np.array([sample.var(ddof=1) / len(sample) for sample in (a, b)])
    if squares.sum() == 0:
        return Estimate(estimate, reason="all units of a sample are equal")
    degrees = squares.sum() ** 2 / float((squares**2 / [len(a) - 1, len(b) - 1]).sum())
    return _student(estimate, math.sqrt(squares.sum()), degrees, alpha)


def trend(x: Float[np.ndarray, " unit"], y: Float[np.ndarray, " unit"], *, alpha: float = 0.05) -> Estimate:
    """Return the least-squares slope of y against x, with Student's t (n - 2 degrees of freedom).

    Pairs with NaN or infinity are left out. p is NaN and there is no interval for fewer than three pairs, for
    fewer than two different x (where the slope is NaN too), and for pairs that lie on a line.
    """
    from scipy import stats

    both = np.isfinite(x) & np.isfinite(y)
    x, y = x[both], y[both]
    if len(np.unique(x)) < 2:
        return Estimate(math.nan, reason=f"{len(np.unique(x))} different x; a slope needs 2")
    fit = stats.linregress(x, y)
    if len(x) < 3:
        return Estimate(float(fit.slope), reason=f"{len(x)} units; a spread about a line needs 3")
    return _student(float(fit.slope), float(fit.stderr), len(x) - 2, alpha)


def infer(
    statistic: str, samples: Sequence[str | None], x: np.ndarray, values: np.ndarray, *, alpha: float
) -> dict[str, Any]:
    """Return the columns of `inference` for one statistic of the rank studies.

    statistic: "mean", "difference" (of two means) or "trend" (along x). The difference is the mean of the
    sample "series" minus that of the others.
    """
    if statistic == "difference":
        series = np.array([sample == "series" for sample in samples])
        result = difference(values[series], values[~series], alpha=alpha)
    else:
        result = mean(values, alpha=alpha) if statistic == "mean" else trend(x, values, alpha=alpha)
    method = METHODS[statistic] if result.reason is None else None
    n = int(np.isfinite(values).sum())
    return result._asdict() | {"n": n, "n_clusters": n, "method": method, "interval_method": method}


def detectable_mean(error: float, degrees: float, alpha: float) -> float:
    """Return the distance from the null value that a t test finds with a power of 80 %.

    It solves P(|T| > t) = 0.8 for the non-central T of the distance; t is the critical value. NaN without spread.
    """
    from scipy import optimize, stats

    if not error > 0:
        return math.nan
    # |T| > t where a normal variable exceeds t times the estimated spread, which has this distribution.
    spreads = np.sqrt(stats.chi2.ppf((np.arange(SPREADS) + 0.5) / SPREADS, degrees) / degrees)
    limits = stats.t.ppf(1 - alpha / 2, degrees) * spreads

    def missing(shift: float) -> float:
        return float((stats.norm.sf(limits - shift) + stats.norm.cdf(-limits - shift)).mean()) - POWER

    return error * float(optimize.brentq(missing, 0, 5 + 5 * limits.max()))


def _student(estimate: float, error: float, degrees: float, alpha: float) -> Estimate:
    from scipy import stats

    if not error > 0:
        return Estimate(estimate, reason="all units are equal, or lie on a line")
    reach = float(stats.t.ppf(1 - alpha / 2, degrees)) * error
    p = 2 * float(stats.t.sf(abs(estimate) / error, degrees))
    return Estimate(estimate, estimate - reach, estimate + reach, p, detectable_mean(error, degrees, alpha))


def _finite(values: np.ndarray) -> np.ndarray:
    return np.asarray(values[np.isfinite(values)])

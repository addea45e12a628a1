"""Permutation tests in which what recurs is exchanged as a whole: models over all data sets, or data sets over models.

A table of units is [block, row, column]: a correlation is taken inside each block over rows and columns, and the test
asks how large the mean over blocks gets when isotropy's rows change places, in every block the same way. With data sets
as blocks and models as rows that is the joint label permutation; with one block it is the usual permutation test, and
with conditions as columns a row keeps its conditions, so that conditions never leave their (model, data set).
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from tasks.statistics.ranks import FEWEST_UNITS, average_ranks, complete

SAME = 1e-12  # statistics closer than this are ties: sums in another order differ in the last bits
POWER = 0.8
CHUNK = 4_000_000  # elements of a temporary array


@dataclass(frozen=True)
class Permuted:
    """A permutation test. p is two-sided around the mean over the orders, which no order is favoured by.

    distribution: the statistic under each order, [order], the observed first. smallest: the smallest p that orders can
    give. critical: smallest distance from the centre with p <= alpha; detectable: distance found with 80 % power, by
    the normal approximation with the distribution's standard deviation; both NaN where p cannot reach alpha.
    """

    estimate: float
    p: float
    smallest: float
    critical: float
    detectable: float
    is_exact: bool
    distribution: np.ndarray

    @property
    def orders(self) -> int:
        """Orders looked at, the observed one included."""
        return len(self.distribution)

    @property
    def how(self) -> str:
        """In words, where the orders come from."""
        return f"all {self.orders} orders" if self.is_exact else f"{self.orders - 1} random orders"


def orders(n: int, at_most: int, generator: np.random.Generator) -> tuple[Int[np.ndarray, "order row"], bool]:
    """All orders of n rows where there are no more than at_most + 1, else at_most random ones; the given one first."""
    if n < 13 and math.factorial(n) <= at_most + 1:  # 13! is far above any number of permutations that one waits for
        return np.array(list(itertools.permutations(range(n))), dtype=np.int64).reshape(math.factorial(n), n), True
    drawn = generator.permuted(np.tile(np.arange(n), (at_most, 1)), axis=1)
    return np.concatenate([np.arange(n)[None], drawn]), False


def permute_rows(
    x: Float[np.ndarray, "block row column"],
    y: Float[np.ndarray, "block row column"],
    *,
    permutations: int,
    alpha: float,
    generator: np.random.Generator,
) -> Permuted | None:
    """Test the mean over blocks of Spearman's rho against joint orders of x's rows (science.md 10; Pesarin 2001).

    p = (1 + b) / (1 + B), or the share of all orders. NaN units drop out of whatever order they come to. Blocks without
    a correlation (too few units, constant) drop out of the mean. None where no block has one.
    """
    found, exact = orders(x.shape[1], permutations, generator)
    blocks = np.array([_rho(one, other, found) for one, other in zip(x, y, strict=True)]).reshape(len(x), len(found))
    defined = np.isfinite(blocks)
    if not defined[:, 0].any():
        return None
    with np.errstate(invalid="ignore"):
        means = np.where(defined, blocks, 0).sum(axis=0) / defined.sum(axis=0)
    return judge(means, exact, alpha)


def permute_centred(
    x: Float[np.ndarray, "row column"],
    y: Float[np.ndarray, "row column"],
    *,
    permutations: int,
    alpha: float,
    generator: np.random.Generator,
) -> Permuted | None:
    """Test Pearson's r of two double-centred tables against orders of x's rows. None where one has no spread left."""
    norm = math.sqrt(float((x * x).sum() * (y * y).sum()))
    if norm == 0 or not math.isfinite(norm):
        return None
    found, exact = orders(len(x), permutations, generator)
    return judge(_moved(x @ y.T, found) / norm, exact, alpha)


def double_centred(
    isotropy: Float[np.ndarray, "row column"], log_nmse: Float[np.ndarray, "row column"]
) -> tuple[Float[np.ndarray, "row column"], Float[np.ndarray, "row column"], np.ndarray, np.ndarray]:
    """Ranked isotropy and log NMSE without row and column means, and the rows and columns that are kept, as indices.

    Columns (model, condition) that stand in at least half of the rows (data sets) with units are kept, then rows that
    have them all: means of unequal tables are not comparable. Isotropy is ranked inside its row first. A table whose
    spread is gone but for rounding becomes 0.
    """
    there = complete(isotropy, log_nmse)
    rows = there.any(axis=1)
    columns = np.flatnonzero((2 * there.sum(axis=0) >= rows.sum()) & there.any(axis=0))
    kept = np.flatnonzero(there[:, columns].all(axis=1) & rows)
    block = np.ix_(kept, columns)
    ranked = np.array([average_ranks(row) for row in isotropy[block]]).reshape(len(kept), len(columns))
    return _centre(ranked), _centre(log_nmse[block]), kept, columns


def judge(distribution: Float[np.ndarray, " order"], exact: bool, alpha: float) -> Permuted:
    """p, critical and detectable size from a statistic's values under all orders, the observed first."""
    from scipy import stats

    usable = np.isfinite(distribution)
    centre = float(distribution[usable].mean())
    far = np.where(usable, np.abs(distribution - centre), np.inf)  # an order without a statistic counts against us
    n = len(far)
    smallest = float((far >= far[usable].max() - SAME).mean())
    critical = detectable = math.nan
    if smallest <= alpha:
        descending = np.sort(far)[::-1]
        critical = float(_smallest_significant(descending, alpha))
        wanted = (stats.norm.isf(alpha / 2) + stats.norm.ppf(POWER)) * float(distribution[usable].std())
        detectable = wanted if wanted < 1 and critical < 1 - SAME else math.nan
    p = float((far >= far[0] - SAME).sum() / n)
    return Permuted(float(distribution[0]), p, smallest, critical, detectable, exact, distribution)


def _smallest_significant(descending: Float[np.ndarray, " order"], alpha: float) -> float:
    """The smallest value that at most a share alpha of the values reaches."""
    at_least = np.searchsorted(-descending, -(descending - SAME), side="right")  # how many reach each value
    return float(descending[at_least <= alpha * len(descending)].min())


def _rho(
    x: Float[np.ndarray, "row column"], y: Float[np.ndarray, "row column"], found: Int[np.ndarray, "order row"]
) -> Float[np.ndarray, " order"]:
    if (
        complete(x, y).all() and x.size >= FEWEST_UNITS
    ):  # ranks do not change with the order: one product a pair of rows
        a, b = (_centred_ranks(values) for values in (x, y))
        norm = math.sqrt(float((a * a).sum() * (b * b).sum()))
        return _moved(a @ b.T, found) / norm if norm else np.full(len(found), np.nan)
    if not complete(x, y).any():
        return np.full(len(found), np.nan)
    step = max(1, CHUNK // x.size**2)
    parts = [_rho_with_holes(x, y, found[n : n + step]) for n in range(0, len(found), step)]
    return np.concatenate(parts)


def _rho_with_holes(
    x: Float[np.ndarray, "row column"], y: Float[np.ndarray, "row column"], found: Int[np.ndarray, "order row"]
) -> Float[np.ndarray, " order"]:
    """Spearman's rho in each order over the units that have both values there."""
    a = x[found].reshape(len(found), -1)
    b = np.broadcast_to(y.reshape(-1), a.shape)
    there = complete(a, b)
    n = there.sum(axis=1)
    r, s = (_holed_ranks(values, there) for values in (a, b))
    cross, xx, yy = ((one * other).sum(axis=1) for one, other in ((r, s), (r, r), (s, s)))
    defined = (n >= FEWEST_UNITS) & (xx > 0) & (yy > 0)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(defined, cross / np.sqrt(xx * yy), np.nan)


def _holed_ranks(values: Float[np.ndarray, "order unit"], there: np.ndarray) -> Float[np.ndarray, "order unit"]:
    """Average ranks minus their mean, among the units that are there; 0 for the others."""
    other, one = values[:, None, :], values[:, :, None]
    below = ((other < one) + 0.5 * (other == one)) * there[:, None, :]
    return np.where(there, below.sum(axis=2) - there.sum(axis=1, keepdims=True) / 2, 0)


def _moved(products: Float[np.ndarray, "row row"], found: Int[np.ndarray, "order row"]) -> Float[np.ndarray, " order"]:
    """Sum over rows r of products[order[r], r]."""
    total: np.ndarray = products[found, np.arange(products.shape[1])].sum(axis=1)
    return total


def _centred_ranks(values: Float[np.ndarray, "row column"]) -> Float[np.ndarray, "row column"]:
    ranks = average_ranks(values.reshape(-1)).reshape(values.shape)
    return ranks - (values.size + 1) / 2


def _centre(values: Float[np.ndarray, "row column"]) -> Float[np.ndarray, "row column"]:
    if not values.size:
        return values
    left = values - values.mean(axis=1, keepdims=True) - values.mean(axis=0, keepdims=True) + values.mean()
    spread, size = float((left * left).mean()), float((values * values).mean())
    return left if spread > 1e-20 * size else np.zeros_like(left)

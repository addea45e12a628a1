"""Permutation tests that exchange whole units: models over all data sets, or data sets over models.

A table of units is [block, row, column]. A correlation is computed inside each block over rows and columns.
The test compares the mean over blocks with its values when isotropy's rows are permuted in the same way in
every block. With data sets as blocks and models as rows, this is the joint label permutation. With one block,
it is the usual permutation test. With conditions as columns, a row keeps its conditions, so conditions never
leave their (model, data set).
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from tsfmscope.statistics.ranks import FEWEST_UNITS, average_ranks, complete

# Statistics closer than this are ties: sums in another order differ in the last bits.
TIE_TOLERANCE = 1e-12
POWER = 0.8
# Maximum number of elements of a temporary array.
CHUNK = 4_000_000


@dataclass(frozen=True)
class PermutationTest:
    """Result of a permutation test.

    - p: two-sided around the mean over the orders.
    - distribution: the statistic under each order, [order], the observed order first.
    - smallest: the smallest p that the orders can give.
    - critical: the smallest distance from the centre with p <= alpha.
    - detectable: the distance found with 80 % power, by the normal approximation with the standard deviation
      of the distribution.
    - is_exact: whether all orders were used.

    critical and detectable are NaN where p cannot reach alpha. detectable is also NaN where it or critical is
    not below 1.
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
        """Return the number of orders used, including the observed one."""
        return len(self.distribution)

    @property
    def description(self) -> str:
        """Return a description of the orders, as text."""
        return f"all {self.orders} orders" if self.is_exact else f"{self.orders - 1} random orders"


def orders(n: int, at_most: int, generator: np.random.Generator) -> tuple[Int[np.ndarray, "order row"], bool]:
    """Return orders of n rows, the given order first, and whether they are all orders.

    All n! orders are returned where there are no more than at_most + 1 of them; otherwise the given order and
    at_most random orders.
    """
    # 13! is far above any practical number of permutations.
    if n < 13 and math.factorial(n) <= at_most + 1:
        return np.array(list(itertools.permutations(range(n))), dtype=np.int64).reshape(math.factorial(n), n), True
    random_orders = generator.permuted(np.tile(np.arange(n), (at_most, 1)), axis=1)
    return np.concatenate([np.arange(n)[None], random_orders]), False


def permute_rows(
    x: Float[np.ndarray, "block row column"],
    y: Float[np.ndarray, "block row column"],
    *,
    permutations: int,
    alpha: float,
    generator: np.random.Generator,
) -> PermutationTest | None:
    """Test the mean over blocks of Spearman's rho against joint orders of x's rows.

    Source: Pesarin 2001; docs/science.md, "Correlation of isotropy and error". p is the share of orders whose mean
    is at least as far from the centre as the observed one. With B random orders, of which b are that far, p =
    (1 + b) / (1 + B). A pair of values with a NaN is left out of the order in which it occurs. Blocks without
    a correlation (too few units, constant) are left out of the mean. None where no block has a correlation.
    """
    row_orders, exact = orders(x.shape[1], permutations, generator)
    blocks = np.array([_rho(a, b, row_orders) for a, b in zip(x, y, strict=True)]).reshape(len(x), len(row_orders))
    is_defined = np.isfinite(blocks)
    if not is_defined[:, 0].any():
        return None
    with np.errstate(invalid="ignore"):
        means = np.where(is_defined, blocks, 0).sum(axis=0) / is_defined.sum(axis=0)
    return evaluate_orders(means, exact, alpha)


def permute_centred(
    x: Float[np.ndarray, "row column"],
    y: Float[np.ndarray, "row column"],
    *,
    permutations: int,
    alpha: float,
    generator: np.random.Generator,
) -> PermutationTest | None:
    """Test Pearson's r of two double-centred tables against orders of x's rows.

    None where one of the tables has no spread left. p as in `permute_rows`.
    """
    norm = math.sqrt(float((x * x).sum() * (y * y).sum()))
    if norm == 0 or not math.isfinite(norm):
        return None
    row_orders, exact = orders(len(x), permutations, generator)
    return evaluate_orders(_ordered_sums(x @ y.T, row_orders) / norm, exact, alpha)


def double_centred(
    isotropy: Float[np.ndarray, "row column"], log_nmse: Float[np.ndarray, "row column"]
) -> tuple[Float[np.ndarray, "row column"], Float[np.ndarray, "row column"], np.ndarray, np.ndarray]:
    """Return ranked isotropy and log NMSE without row and column means, and the kept indices.

    The indices are those of the kept rows and of the kept columns. Columns (model, condition) that have units
    in at least half of the rows (data sets) are kept, then rows that have all of these columns: means of
    incomplete tables are not comparable. Isotropy is first ranked within its row. A table whose spread is
    only rounding becomes 0.
    """
    is_complete = complete(isotropy, log_nmse)
    rows = is_complete.any(axis=1)
    columns = np.flatnonzero((2 * is_complete.sum(axis=0) >= rows.sum()) & is_complete.any(axis=0))
    complete_rows = np.flatnonzero(is_complete[:, columns].all(axis=1) & rows)
    block = np.ix_(complete_rows, columns)
    ranked = np.array([average_ranks(row) for row in isotropy[block]]).reshape(len(complete_rows), len(columns))
    return _centre(ranked), _centre(log_nmse[block]), complete_rows, columns


def evaluate_orders(distribution: Float[np.ndarray, " order"], exact: bool, alpha: float) -> PermutationTest:
    """Compute p, critical and detectable size from a statistic's values under all orders, the observed first."""
    from scipy import stats

    usable = np.isfinite(distribution)
    centre = float(distribution[usable].mean())
    # An order without a statistic counts as extreme: this makes p larger.
    far = np.where(usable, np.abs(distribution - centre), np.inf)
    n = len(far)
    smallest = float((far >= far[usable].max() - TIE_TOLERANCE).mean())
    critical = detectable = math.nan
    if smallest <= alpha:
        descending = np.sort(far)[::-1]
        # Number of values that reach each value.
        at_least = np.searchsorted(-descending, -(descending - TIE_TOLERANCE), side="right")
        critical = float(descending[at_least <= alpha * n].min())
        distance = (stats.norm.isf(alpha / 2) + stats.norm.ppf(POWER)) * float(distribution[usable].std())
        detectable = distance if distance < 1 and critical < 1 - TIE_TOLERANCE else math.nan
    p = float((far >= far[0] - TIE_TOLERANCE).sum() / n)
    return PermutationTest(float(distribution[0]), p, smallest, critical, detectable, exact, distribution)


def _rho(
    x: Float[np.ndarray, "row column"], y: Float[np.ndarray, "row column"], row_orders: Int[np.ndarray, "order row"]
) -> Float[np.ndarray, " order"]:
    # Ranks do not change with the order: one product per pair of rows is enough.
    if complete(x, y).all() and x.size >= FEWEST_UNITS:
        a, b = (average_ranks(values.reshape(-1)).reshape(x.shape) - (x.size + 1) / 2 for values in (x, y))
        norm = math.sqrt(float((a * a).sum() * (b * b).sum()))
        return _ordered_sums(a @ b.T, row_orders) / norm if norm else np.full(len(row_orders), np.nan)
    if not complete(x, y).any():
        return np.full(len(row_orders), np.nan)
    step = max(1, CHUNK // x.size**2)
    parts = [_rho_with_holes(x, y, row_orders[n : n + step]) for n in range(0, len(row_orders), step)]
    return np.concatenate(parts)


def _rho_with_holes(
    x: Float[np.ndarray, "row column"], y: Float[np.ndarray, "row column"], row_orders: Int[np.ndarray, "order row"]
) -> Float[np.ndarray, " order"]:
    """Return Spearman's rho in each order, over the units that have both values in that order."""
    a = x[row_orders].reshape(len(row_orders), -1)
    b = np.broadcast_to(y.reshape(-1), a.shape)
    is_complete = complete(a, b)
    n = is_complete.sum(axis=1)
    r, s = (_holed_ranks(values, is_complete) for values in (a, b))
    cross, xx, yy = ((first * second).sum(axis=1) for first, second in ((r, s), (r, r), (s, s)))
    is_defined = (n >= FEWEST_UNITS) & (xx > 0) & (yy > 0)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(is_defined, cross / np.sqrt(xx * yy), np.nan)


def _holed_ranks(values: Float[np.ndarray, "order unit"], is_complete: np.ndarray) -> Float[np.ndarray, "order unit"]:
    """Return average ranks minus their mean among the units with values, and 0 for the others."""
    rows, columns = values[:, :, None], values[:, None, :]
    below = ((columns < rows) + 0.5 * (columns == rows)) * is_complete[:, None, :]
    return np.where(is_complete, below.sum(axis=2) - is_complete.sum(axis=1, keepdims=True) / 2, 0)


def _ordered_sums(
    products: Float[np.ndarray, "row row"], row_orders: Int[np.ndarray, "order row"]
) -> Float[np.ndarray, " order"]:
    """Return the sum over rows r of products[order[r], r], for each order."""
    return np.asarray(products[row_orders, np.arange(products.shape[1])].sum(axis=1))


def _centre(values: Float[np.ndarray, "row column"]) -> Float[np.ndarray, "row column"]:
    if not values.size:
        return values
    residual = values - values.mean(axis=1, keepdims=True) - values.mean(axis=0, keepdims=True) + values.mean()
    spread, size = float((residual * residual).mean()), float((values * values).mean())
    return residual if spread > 1e-20 * size else np.zeros_like(residual)

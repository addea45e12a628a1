"""Permutation tests that exchange whole units, sign tests, and corrections of p-values for many tests in one table.

A table of units is [block, row, column]. A correlation is computed inside each block over rows and columns.
The test compares the mean over blocks with its values when isotropy's rows are permuted in the same way in
every block. With data sets as blocks and models as rows, this is the joint label permutation. With one block,
it is the usual permutation test. With conditions as columns, a row keeps its conditions, so conditions never
leave their (model, data set).

A sign test asks which of two conditions or data sets has the lower error: the one with more isotropic states? This is
how Shelim et al. 2025 argue.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from tsfmscope.statistics.ranks import FEWEST_UNITS, average_ranks, complete, mean_of_defined

Blocks = Float[np.ndarray, "block row column"]
Table = Float[np.ndarray, "row column"]
Orders = Int[np.ndarray, "order row"]
Labels = Int[np.ndarray, " row"]
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
    def columns(self) -> dict[str, float]:
        """Columns of `inference` for the numbers of the test."""
        row = {"estimate": self.estimate, "p": self.p, "p_smallest": self.smallest}
        return row | {"critical": self.critical, "detectable": self.detectable}

    @property
    def description(self) -> str:
        """Return a description of the orders, as text."""
        orders = len(self.distribution)
        return f"all {orders} orders" if self.is_exact else f"{orders - 1} random orders"


def orders_inside(labels: Labels, at_most: int, generator: np.random.Generator) -> tuple[Orders, bool]:
    """Return orders of rows that stay inside their groups, the given one first, and whether they are all orders.

    labels: group of each row. All orders are returned where there are no more than at_most + 1 of them; otherwise the
    given one and at_most random ones.
    """
    groups = [np.flatnonzero(labels == label) for label in np.unique(labels)]
    count = math.prod(math.factorial(len(at)) if len(at) < 13 else at_most + 2 for at in groups)
    if count <= at_most + 1:
        permuted = itertools.product(*(itertools.permutations(at.tolist()) for at in groups))
        orders = np.tile(np.arange(len(labels)), (count, 1))
        for order, parts in zip(orders, permuted, strict=True):
            for at, part in zip(groups, parts, strict=True):
                order[at] = part
        return orders, True
    orders = np.tile(np.arange(len(labels)), (at_most + 1, 1))
    for at in groups:
        orders[1:, at] = generator.permuted(orders[1:, at], axis=1)
    return orders, False


def orders_between(labels: Labels, at_most: int, generator: np.random.Generator) -> tuple[Orders, bool]:
    """Return orders of rows that exchange whole groups with as many rows, as `orders_inside` does.

    The rows of a group keep their order: the first row of one takes the place of the first row of another.
    """
    groups = [np.flatnonzero(labels == label) for label in np.unique(labels)]
    of_groups, is_exact = orders_inside(np.array([len(at) for at in groups]), at_most, generator)
    orders = np.empty((len(of_groups), len(labels)), dtype=np.int64)
    for at, taken in zip(groups, of_groups.T, strict=True):
        orders[:, at] = np.array([groups[n] for n in taken])
    return orders, is_exact


def permute_rows(
    x: Blocks,
    y: Blocks,
    *,
    permutations: int,
    alpha: float,
    generator: np.random.Generator,
    families: Labels | None = None,
) -> PermutationTest | None:
    """Test the mean over blocks of Spearman's rho against joint orders of x's rows.

    families: family of each row, if rows are models. Models of a family are more alike than others, so the orders
    exchange whole families that have as many models.

    Source: Pesarin 2001; docs/science.md, "Correlation of isotropy and error". p is the share of orders whose mean
    is at least as far from the centre as the observed one. With B random orders, of which b are that far, p =
    (1 + b) / (1 + B). A pair of values with a NaN is left out of the order in which it occurs. Blocks without
    a correlation (too few units, constant) are left out of the mean. None where no block has a correlation.
    """
    labels = np.arange(x.shape[1]) if families is None else families
    row_orders, exact = orders_between(labels, permutations, generator)
    blocks = np.array([_rho(a, b, row_orders) for a, b in zip(x, y, strict=True)]).reshape(len(x), len(row_orders))
    if not np.isfinite(blocks[:, 0]).any():
        return None
    return evaluate_orders(mean_of_defined(blocks, axis=0), exact, alpha)


def permute_centred(
    x: Table, y: Table, *, permutations: int, alpha: float, generator: np.random.Generator
) -> PermutationTest | None:
    """Test Pearson's r of two double-centred tables against orders of x's rows.

    None where one of the tables has no spread left. p as in `permute_rows`.
    """
    norm = math.sqrt(float((x * x).sum() * (y * y).sum()))
    if norm == 0 or not math.isfinite(norm):
        return None
    row_orders, exact = orders_between(np.arange(len(x)), permutations, generator)
    return evaluate_orders(_ordered_sums(x @ y.T, row_orders) / norm, exact, alpha)


def double_centred(isotropy: Table, log_nmse: Table) -> tuple[Table, Table, np.ndarray, np.ndarray]:
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


def _rho(x: Table, y: Table, row_orders: Orders) -> Float[np.ndarray, " order"]:
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


def _rho_with_holes(x: Table, y: Table, row_orders: Orders) -> Float[np.ndarray, " order"]:
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


def _ordered_sums(products: Float[np.ndarray, "row row"], row_orders: Orders) -> Float[np.ndarray, " order"]:
    """Return the sum over rows r of products[order[r], r], for each order."""
    return np.asarray(products[row_orders, np.arange(products.shape[1])].sum(axis=1))


def _centre(values: Table) -> Table:
    if not values.size:
        return values
    residual = values - values.mean(axis=1, keepdims=True) - values.mean(axis=0, keepdims=True) + values.mean()
    spread, size = float((residual * residual).mean()), float((values * values).mean())
    return residual if spread > 1e-20 * size else np.zeros_like(residual)


class Flips(NamedTuple):
    """Result of a clustered sign-flip test, as columns of `inference`.

    - n: number of units; n_clusters: number of clusters C.
    - estimate: share of units that agree; ties count half.
    - p: two-sided p-value; p_smallest: the smallest p that is possible, 2 / 2^C.
    - p_unclustered: p of the unclustered sign test without ties, descriptive only.
    - critical: the smallest share above 1/2 with p <= alpha, NaN where there is none.
    """

    n: int
    n_clusters: int
    estimate: float
    p: float
    p_smallest: float
    p_unclustered: float
    critical: float


def sign_flips(
    signs: Int[np.ndarray, " unit"], cluster: Int[np.ndarray, " unit"], *, alpha: float = 0.05
) -> Flips | None:
    """Test the hypothesis that the sum of signs is 0, against all 2^C flips of whole clusters.

    signs: +1 agrees, -1 disagrees, 0 is a tie. cluster: the cluster of each unit (such as the pair of
    conditions, which all models share). Units of a cluster are flipped together, because they may depend on
    each other. Source: docs/science.md, "Correlation of isotropy and error".

    p is two-sided: the share of flips whose |sum| is at least the observed one. The 2^C sums are counted, not
    listed: the distribution of a sum is the convolution of the two-point distributions of its clusters, which
    is exact for any C. Returns None without units.
    """
    from scipy import stats

    if not len(signs):
        return None
    _, sums = cluster_sums(signs.astype(float), cluster)
    observed, n = int(signs.sum()), len(signs)
    flips = np.abs(np.rint(sums).astype(np.int64))
    reach = int(flips.sum())
    # Share of the 2^C flips that gives each sum from -reach to reach.
    chances = np.zeros(2 * reach + 1)
    chances[reach] = 1.0
    for size in flips:
        # np.roll never wraps around here, because `reach` holds all sums.
        chances = (np.roll(chances, size) + np.roll(chances, -size)) / 2
    sizes = np.abs(np.arange(-reach, reach + 1))
    tail = np.array([chances[sizes >= size].sum() for size in range(n + 1)])
    significant = np.flatnonzero((tail <= alpha) & (tail > 0))
    plus, n_untied = int((signs > 0).sum()), int((signs != 0).sum())
    return Flips(
        n=n,
        n_clusters=len(sums),
        estimate=(observed / n + 1) / 2,
        p=min(1.0, float(tail[abs(observed)])),
        p_smallest=2.0 ** (1 - len(sums)),
        p_unclustered=float(stats.binomtest(plus, n_untied).pvalue) if n_untied else 1.0,
        critical=(float(significant[0]) / n + 1) / 2 if len(significant) else math.nan,
    )


class SignFlipTest(NamedTuple):
    """Result of a sign-flip test of a mean.

    smallest: the smallest p that the flips can give. description: the flips, as text.
    """

    p: float
    smallest: float
    description: str


def flip_mean(values: Float[np.ndarray, " unit"], *, permutations: int, generator: np.random.Generator) -> SignFlipTest:
    """Test the hypothesis that the mean of the values is 0, against flips of their signs.

    All 2^n flips are used, or random ones where those are too many. p is two-sided, (1 + b) / (1 + B), or the
    share of all flips. The test is exact where a value and its negative are equally likely under the null.
    This holds for differences of two rules that choose between two candidates, and nearly holds for others.
    """
    n = len(values)
    if n < 63 and 2**n <= permutations + 1:
        signs = 1 - 2 * ((np.arange(2**n)[:, None] >> np.arange(n)) & 1)
        description = f"all 2^{n} sign flips"
    else:
        random_signs = 1 - 2 * generator.integers(2, size=(permutations, n))
        signs = np.concatenate([np.ones((1, n), dtype=random_signs.dtype), random_signs])
        description = f"{permutations} random sign flips"
    sums = np.abs(signs @ values)
    # Sums in another order differ in the last bits.
    tolerance = 1e-12 * float(np.abs(values).sum())
    p = float((sums >= sums[0] - tolerance).mean())
    return SignFlipTest(p, float((sums >= sums.max() - tolerance).mean()), description)


def cluster_sums(
    values: Float[np.ndarray, " unit"], cluster: Int[np.ndarray, " unit"]
) -> tuple[Float[np.ndarray, " cluster"], Float[np.ndarray, " cluster"]]:
    """Return the number of units and the sum of values in each cluster."""
    _, index = np.unique(cluster, return_inverse=True)
    return np.bincount(index).astype(float), np.bincount(index, weights=values)


def adjust(p: Float[np.ndarray, " test"]) -> tuple[Float[np.ndarray, " test"], Float[np.ndarray, " test"], int]:
    """Return the p-values of one table adjusted by two methods, and the number of tests that have a p-value.

    First Benjamini-Hochberg 1995, then Benjamini-Yekutieli 2001, which is valid for tests that depend on each other in
    any way. Tests whose p is NaN are left out; their adjusted values are NaN.
    """
    from scipy import stats

    is_defined = np.isfinite(p)
    bh, by = np.full(len(p), np.nan), np.full(len(p), np.nan)
    if is_defined.any():
        bh[is_defined] = stats.false_discovery_control(p[is_defined], method="bh")
        by[is_defined] = stats.false_discovery_control(p[is_defined], method="by")
    return bh, by, int(is_defined.sum())

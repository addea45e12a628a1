"""Sign tests: of two conditions or data sets, does the one with more isotropic states have the lower error?

This is how Shelim et al. 2025 argue.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int


class Flips(NamedTuple):
    """Result of a clustered sign-flip test.

    - share: share of units that agree; ties count half.
    - p: two-sided p-value; smallest: the smallest p that is possible, 2 / 2^C.
    - critical: the smallest share above 1/2 with p <= alpha, NaN where there is none.
    - clusters: number of clusters C; n: number of units.
    - binomial: p of the unclustered sign test without ties, descriptive only.
    """

    share: float
    p: float
    smallest: float
    critical: float
    clusters: int
    n: int
    binomial: float


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
    values, chances = flip_distribution(np.rint(sums).astype(np.int64))
    tail = np.array([chances[np.abs(values) >= size].sum() for size in range(n + 1)])
    significant = np.flatnonzero((tail <= alpha) & (tail > 0))
    plus, n_untied = int((signs > 0).sum()), int((signs != 0).sum())
    return Flips(
        share=(observed / n + 1) / 2,
        p=min(1.0, float(tail[abs(observed)])),
        smallest=2.0 ** (1 - len(sums)),
        critical=(float(significant[0]) / n + 1) / 2 if len(significant) else math.nan,
        clusters=len(sums),
        n=n,
        binomial=float(stats.binomtest(plus, n_untied).pvalue) if n_untied else 1.0,
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


def flip_distribution(
    sums: Int[np.ndarray, " cluster"],
) -> tuple[Int[np.ndarray, " value"], Float[np.ndarray, " value"]]:
    """Return every value of the sum of +-sums, and the share of the 2^C flips that gives it."""
    reach = int(np.abs(sums).sum())
    chances = np.zeros(2 * reach + 1)
    chances[reach] = 1.0
    for size in np.abs(sums):
        # np.roll never wraps around here, because `reach` holds all sums.
        chances = (np.roll(chances, size) + np.roll(chances, -size)) / 2
    return np.arange(-reach, reach + 1), chances

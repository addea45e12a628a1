"""Standard deviations of the measures over random halves of the tokens and new starts of the clustering."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int, Integer

from tsfmscope.geometry.adjusted import adjusted_cosine
from tsfmscope.geometry.clusters import choose_among, largest_k
from tsfmscope.geometry.cosine import inter_token_cosine
from tsfmscope.geometry.dimension import effective_dimension
from tsfmscope.geometry.options import ClusterOptions, IsotropyOptions
from tsfmscope.geometry.partition import partition_isotropy

MEASURES = ("zeta", "zeta_adjusted", "zeta_adjusted_corrected", "effective_dimension", "log_isotropy_scaled")
# Share of variance of the effective dimension d(s).
SHARE = 0.8
# Number of leading axes that are recomputed in every half; the other axes stay those of all rows.
AXES = 64
# Draws of the null in one half: cheap, and the error of its mean is half a standard deviation of
# the null.
PERMUTATIONS = 4
# Starts of K-means in one half.
STARTS = 2
# A half needs 3 rows for a silhouette.
LEAST_ROWS = 6


class Rows(NamedTuple):
    """Rows with types, and the same rows as `principal_coordinates` and `uncentred_projections` return them."""

    states: Float[np.ndarray, "token width"]
    types: Integer[np.ndarray, " token"] | None
    points: Float[np.ndarray, "token axis"]
    projections: Float[np.ndarray, "token width"]

    def take(self, rows: Int[np.ndarray, " row"]) -> Rows:
        """Return the selected rows."""
        return Rows(*(None if part is None else np.ascontiguousarray(part[rows]) for part in self))  # type: ignore[arg-type]


def spread_over_halves(rows: Rows, options: IsotropyOptions, *, seed: int) -> dict[str, Any]:
    """Estimate the standard deviation of MEASURES over samples of as many tokens and over cluster starts.

    Source: docs/science.md, Spread; Shao & Wu 1989 (delete-d jackknife). Each repeat draws m = n // 2 of the n
    rows without replacement, clusters them from its own starts, and measures them. min_cluster is halved like
    the rows. The standard deviation over repeats is multiplied by √(m / (n - m)), which is 1 for even n. It
    estimates the standard deviation over independent samples of n rows for a measure whose error falls as
    1/√n, if the rows are independent.

    A measure whose error falls faster gets too large a value. Near isotropic states this is up to twofold for
    ζ′ minus its null mean (which falls as 1/n) and about threefold for ζ′ itself, whose floor falls as
    n^-3/2. It is more where halves change the number of clusters that all rows agree on.

    To save time, K-means begins from STARTS starts and only in the leading axes (`kmeans`, quick). Only the
    leading AXES axes are recomputed in each half for d(0.8) and log I. The null of a half has at most
    PERMUTATIONS draws. A measure that is defined in fewer than 2 repeats has no standard deviation (None).
    With fewer than LEAST_ROWS rows or fewer than 2 repeats, `repeats` is 0 and every standard deviation is
    None.
    """
    n, m = len(rows.states), len(rows.states) // 2
    if n < LEAST_ROWS or options.repeats < 2:
        return {"repeats": 0} | {f"{name}_sd": None for name in MEASURES}
    results = []
    for number in range(options.repeats):
        rng = np.random.default_rng([seed, 7, number])
        half, start = rows.take(np.sort(rng.choice(n, m, replace=False))), int(rng.integers(2**63))
        labels = _labels(half, options, start)
        results.append(_measures(half) | _inside(half, labels, options, start))
    scale = float(np.sqrt(m / (n - m)))
    return {"repeats": options.repeats} | {
        f"{name}_sd": _sd([result[name] for result in results], scale) for name in MEASURES
    }


def _labels(rows: Rows, options: ClusterOptions, seed: int) -> Int[np.ndarray, " token"] | None:
    """Label the rows as `choose_clusters` does, by a shorter search; None where no K ≥ 2 is possible."""
    if largest_k(rows.states, 2) < 2:
        return None
    few_starts = options.model_copy(update={"restarts": STARTS})
    return choose_among(rows.states, rows.points, few_starts, seed=seed, quick=True).labels


def _measures(rows: Rows) -> dict[str, float | None]:
    """Compute the MEASURES that need no clusters."""
    constant = largest_k(rows.states, 2) < 2
    # Projections on these rows' own axes in the space of the leading AXES.
    leading = rows.projections[:, :AXES]
    turned = leading @ np.linalg.eigh(leading.T @ leading)[1]
    own_axes = np.concatenate([turned, rows.projections[:, AXES:]], axis=1)
    return {
        "zeta": inter_token_cosine(rows.states, rows.types).zeta,
        "effective_dimension": None if constant else float(effective_dimension(_variances(rows.points), SHARE)),
        "log_isotropy_scaled": partition_isotropy(own_axes).scaled,
    }


def _inside(rows: Rows, labels: np.ndarray | None, options: IsotropyOptions, seed: int) -> dict[str, float | None]:
    """Compute the MEASURES within clusters of a half, whose smallest number of rows is halved too."""
    if labels is None:
        return {"zeta_adjusted": None, "zeta_adjusted_corrected": None}
    cosine = adjusted_cosine(
        rows.points,
        labels,
        rows.types,
        min_cluster=max(2, (options.min_cluster + 1) // 2),
        permutations=min(options.permutations, PERMUTATIONS),
        seed=seed,
    )
    return {"zeta_adjusted": cosine.mean, "zeta_adjusted_corrected": cosine.corrected}


def _variances(points: Float[np.ndarray, "token axis"]) -> Float[np.ndarray, " axis"]:
    """Return eigenvalues of the covariance's block of the leading AXES, and variances along the other axes.

    Both lack the factor 1/(N - 1), which does not change shares of variance.
    """
    centred = points - points.mean(axis=0)
    leading = np.linalg.eigvalsh(centred[:, :AXES].T @ centred[:, :AXES])
    return np.concatenate([np.maximum(leading, 0.0), np.einsum("nd,nd->d", centred[:, AXES:], centred[:, AXES:])])


def _sd(values: list[float | None], scale: float) -> float | None:
    """Return scale times the standard deviation of the values that are not None; None for fewer than two."""
    known = [value for value in values if value is not None]
    return scale * float(np.std(known, ddof=1)) if len(known) > 1 else None

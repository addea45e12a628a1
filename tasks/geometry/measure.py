"""All geometry measures of one layer's states."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Integer

from tsfmscope.tasks.geometry.adjusted import adjusted_cosine
from tsfmscope.tasks.geometry.cai import cai
from tsfmscope.tasks.geometry.clusters import ClusterOptions, choose_among, distinct_rows
from tsfmscope.tasks.geometry.cosine import inter_token_cosine
from tsfmscope.tasks.geometry.dimension import covariance_spectrum, principal_coordinates
from tsfmscope.tasks.geometry.isoscore import isoscore, isoscore_star
from tsfmscope.tasks.geometry.partition import of_projections, uncentred_projections
from tsfmscope.tasks.geometry.repeats import MEASURES as REPEATED
from tsfmscope.tasks.geometry.repeats import Rows, spread_over_halves

MEASURES = (
    "zeta", "zeta_token", "k", "zeta_adjusted", "zeta_adjusted_weighted", "zeta_adjusted_floor",
    "zeta_adjusted_corrected", "zeta_adjusted_null", "zeta_adjusted_null_sd", "zeta_adjusted_p",
    "zeta_adjusted_isotropic", "log_isotropy", "log_isotropy_scaled", "isoscore", "isoscore_star",
    "cai_rows", "cai_cosine", "cai_k", "cai_silhouettes", "cai_cluster_cosine",
)  # fmt: skip
# The preset "cai" clusters again, with K up to 15: it more than doubles the time of a row.
PRESETS = ("isoscore", "cai")
# Significance level: with p above it, ζ′ is indistinguishable from isotropic.
LEVEL = 0.05
# Range of the largest entry in which squares and their products stay inside float64.
SMALL, LARGE = 1e-100, 1e100
# A silhouette needs 2 clusters and at most N - 1 labels.
LEAST_ROWS = 3


def subsample(
    states: Float[np.ndarray, "token width"], types: Integer[np.ndarray, " token"] | None, tokens: int, *, seed: int
) -> tuple[np.ndarray, np.ndarray | None]:
    """Draw at most `tokens` rows without replacement, in their order: ζ, d(ε) and K depend on N."""
    if len(states) <= tokens:
        return states, types
    rows = np.sort(np.random.default_rng([seed, 2]).choice(len(states), tokens, replace=False))
    return states[rows], None if types is None else types[rows]


def measure_states(
    states: Float[np.ndarray, "token width"],
    types: Integer[np.ndarray, " token"] | None = None,
    *,
    k_max: int = 10,
    restarts: int = 10,
    min_silhouette: float = 0.1,
    min_cluster: int = 30,
    silhouette_rows: int = 20_000,
    permutations: int = 39,
    repeats: int = 5,
    presets: Sequence[str] = PRESETS[:1],
    seed: int,
) -> dict[str, Any]:
    """Compute the measures of science.md section 2 as columns of `geometry`.

    Source: Shelim et al. 2025, eqs. 1, 5 and 6, and section 4.1. permutations: number of draws of the null of
    ζ′; below 2 there is no null. repeats: number of random halves of the rows from which standard deviations
    are estimated (`spread_over_halves`). presets: measures of other papers to add, from PRESETS.

    Rows of norm 0 are counted in n_tokens and n_zero and left out of every measure. A measure that the states
    do not define (one token, one type, equal rows, all zero) is None, or an empty list for a list column, and
    `reason` gives the cause. No measure is ever NaN. Raises ValueError for a wrong shape, for NaN or infinity
    (with the number of rows), and for an unknown preset.
    """
    if unknown := set(presets) - set(PRESETS):
        raise ValueError(f"presets: got {sorted(unknown)}, expected some of {list(PRESETS)}")
    options = ClusterOptions(k_max, restarts, min_silhouette, silhouette_rows)
    check_states(states, types)
    cosine = inter_token_cosine(states, types)
    kept = np.asarray(states).any(axis=1)
    rows = np.asarray(states)[kept].astype(np.float64)
    kinds = None if types is None else np.asarray(types)[kept]
    row = _nothing() | {"n_tokens": len(states), "n_types": cosine.n_types, "n_zero": cosine.n_zero}
    if len(rows) < LEAST_ROWS:
        return row | {"reason": f"{len(rows)} rows that are not zero; at least {LEAST_ROWS} are needed"}
    projections = uncentred_projections(rows)
    isotropy = of_projections(projections)
    row |= {"zeta": cosine.zeta, "zeta_token": cosine.zeta_token}
    row |= {"log_isotropy": isotropy.given, "log_isotropy_scaled": isotropy.scaled}
    if distinct_rows(rows, 2) > 1:
        row |= _local(rows, kinds, projections, options, Drawn(min_cluster, permutations, repeats), seed)
    if "isoscore" in presets:
        row |= _isoscores(np.asarray(row["eigenvalues"]))
    if "cai" in presets:
        row |= _cai(rows, kinds, seed)
    return row | {"reason": "; ".join(_reasons(row, presets, Drawn(min_cluster, permutations, repeats))) or None}


def check_states(states: np.ndarray, types: np.ndarray | None) -> None:
    """Raise ValueError unless the states are [N, d], finite, of usable size, and have one type per row."""
    if states.ndim != 2 or states.shape[1] < 1:
        raise ValueError(f"states: got shape {states.shape}, expected [token, width]")
    if types is not None and np.shape(types) != (len(states),):
        raise ValueError(f"types: got shape {np.shape(types)}, expected one a row, ({len(states)},)")
    bad = int(np.count_nonzero(~np.isfinite(states).all(axis=1)))
    if bad:
        raise ValueError(f"states: {bad} of {len(states)} rows hold NaN or infinity; check the model and its dtype")
    largest = float(np.abs(states).max(initial=0))
    if largest and not SMALL <= largest <= LARGE:
        raise ValueError(f"states: largest entry {largest:.3g}, expected 0 or {SMALL:g} to {LARGE:g}; scale them")


class Drawn(NamedTuple):
    """Minimum rows of a cluster for ζ′, number of draws of its null, and number of random halves."""

    min_cluster: int
    permutations: int
    repeats: int


def _local(
    rows: np.ndarray,
    types: np.ndarray | None,
    projections: np.ndarray,
    options: ClusterOptions,
    drawn: Drawn,
    seed: int,
) -> dict[str, Any]:
    """Compute the spectrum, the clusters, the cosine within them, and standard deviations."""
    spectrum = covariance_spectrum(rows)
    points = principal_coordinates(rows, spectrum)
    chosen = choose_among(rows, points, options, seed=seed)
    least, permutations = drawn.min_cluster, drawn.permutations
    adjusted = adjusted_cosine(rows, chosen.labels, types, min_cluster=least, permutations=permutations, seed=seed)
    found = {
        "k": chosen.k,
        "silhouettes": list(chosen.silhouettes),
        "n_clusters_used": adjusted.used,
        "n_clusters_small": adjusted.small,
        "zeta_adjusted": adjusted.mean,
        "zeta_adjusted_weighted": adjusted.weighted,
        "zeta_adjusted_floor": adjusted.floor,
        "zeta_adjusted_corrected": adjusted.corrected,
        "zeta_adjusted_null": adjusted.null,
        "zeta_adjusted_null_sd": adjusted.null_sd,
        "zeta_adjusted_p": adjusted.p,
        "zeta_adjusted_isotropic": None if adjusted.p is None else adjusted.p > LEVEL,
        "eigenvalues": spectrum.eigenvalues.tolist(),
    }
    every = Rows(rows, types, points, projections)
    return found | spread_over_halves(every, options, **drawn._asdict(), seed=seed)


def _isoscores(eigenvalues: np.ndarray) -> dict[str, Any]:
    """Compute IsoScore, and IsoScore* with the mean eigenvalue as target, so that it does not depend on scale."""
    star = isoscore_star(eigenvalues, target=float(eigenvalues.sum() / max(len(eigenvalues), 1)))
    return {"isoscore": isoscore(eigenvalues), "isoscore_star": star}


def _cai(rows: np.ndarray, types: np.ndarray | None, seed: int) -> dict[str, Any]:
    peer = cai(rows, types, seed=seed)
    return {
        "cai_rows": peer.n,
        "cai_cosine": peer.inter_cosine,
        "cai_k": peer.k,
        "cai_silhouettes": list(peer.silhouettes),
        "cai_cluster_cosine": peer.cluster_cosine,
    }


def _reasons(row: Mapping[str, Any], presets: Sequence[str], drawn: Drawn) -> Iterator[str]:
    """Yield the reasons why measures of the row are None."""
    if row["zeta"] is None:
        yield "zeta: one token type; at least 2 are needed"
    if not row["eigenvalues"]:
        yield "clusters and eigenvalues: all rows are equal"
    elif row["zeta_adjusted"] is None:
        small = row["n_clusters_small"]
        one = f"; {row['k'] - small} of {row['k']} hold one token type or equal rows" if row["k"] > small else ""
        yield f"zeta_adjusted: no cluster of at least {drawn.min_cluster} rows and 2 types that differ{one}"
    elif row["zeta_adjusted_null"] is None:
        yield f"zeta_adjusted_null and _corrected: {drawn.permutations} permutations; at least 2 are needed"
    if "isoscore" in presets and len(row["eigenvalues"]) == 1:
        yield "isoscore: states of width 1; at least 2 are needed"
    if "cai" in presets and row["cai_k"] is None:
        yield f"cai: {row['cai_rows']} types; at least {LEAST_ROWS} are needed, of which 2 differ"


def _nothing() -> dict[str, Any]:
    """Return every measured column without a value."""
    others: dict[str, Any] = {"silhouettes": [], "eigenvalues": []}
    others |= dict.fromkeys(("n_clusters_used", "n_clusters_small", "repeats"), 0)
    return dict.fromkeys((*MEASURES, *(f"{name}_sd" for name in REPEATED))) | others

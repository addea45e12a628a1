"""Every measure of one layer's states, and the sweep's entry."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from jaxtyping import Float, Integer

from tasks.geometry.adjusted import adjusted_cosine
from tasks.geometry.cai import cai
from tasks.geometry.clusters import ClusterOptions, choose_clusters, distinct_rows
from tasks.geometry.cosine import inter_token_cosine
from tasks.geometry.dimension import covariance_spectrum
from tasks.geometry.isoscore import isoscore, isoscore_star
from tasks.geometry.partition import log_isotropy

if TYPE_CHECKING:
    from tasks.sweep.jobs import Job, Result

IDENTITY = ("model", "base_model", "rank", "dataset", "condition", "context", "noise")
PLACE = ("stack", "layer", "normed")
MEASURES = (
    "zeta", "zeta_token", "k", "zeta_adjusted", "zeta_adjusted_weighted", "zeta_adjusted_floor",
    "zeta_adjusted_corrected", "zeta_adjusted_null", "zeta_adjusted_null_sd", "zeta_adjusted_p",
    "zeta_adjusted_isotropic", "log_isotropy", "log_isotropy_scaled", "isoscore", "isoscore_star",
    "cai_rows", "cai_cosine", "cai_k", "cai_silhouettes", "cai_cluster_cosine",
)  # fmt: skip
PRESETS = ("isoscore", "cai")  # cai clusters again, K to 15: it more than doubles a row's time
LEVEL = 0.05  # p above it: indistinguishable from isotropic
SMALL, LARGE = 1e-100, 1e100  # of the largest entry: squares and their products stay inside float64
LEAST_ROWS = 3  # a silhouette needs 2 clusters of at most N - 1 labels


def entry(job: Job, data: Mapping[str, Any], model: None) -> Result:
    """One row of `geometry` from the states of one layer.

    job.spec: identity and place, weights_dtype, `tokens` (rows at most, a seeded sample beyond) and `measure`, the
    keywords of `measure_states`. data: states [N, d], types [N] or None, n_series, states_dtype.
    """
    from tasks.sweep.jobs import Result

    states, types = subsample(data["states"], data["types"], job.spec["tokens"], seed=job.seed)
    row = {name: job.spec[name] for name in (*IDENTITY, *PLACE, "weights_dtype")}
    row |= {"n_series": data["n_series"], "states_dtype": data["states_dtype"], "job_key": job.key}
    return Result([row | measure_states(states, types, **job.spec["measure"], seed=job.seed)])


def subsample(
    states: Float[np.ndarray, "token width"], types: Integer[np.ndarray, " token"] | None, tokens: int, *, seed: int
) -> tuple[np.ndarray, np.ndarray | None]:
    """At most `tokens` rows, drawn without replacement, in their order: ζ, d(ε) and K depend on N."""
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
    presets: Sequence[str] = PRESETS[:1],
    seed: int,
) -> dict[str, Any]:
    """The measures of science section 2 as columns of `geometry`; the isotropy paper's eqs. 1, 5, 6 and section 4.1.

    permutations: of the null that ζ′ is held against, 0 for none. presets: peers' measures taken beside, of PRESETS.
    Rows of norm 0 are counted in n_tokens and n_zero and left out of everything. A measure that the states do not
    allow (one token, one type, equal rows, all zero) is None, a list of them empty, and `reason` says why; none is ever
    NaN. Raises ValueError for a wrong shape, NaN or infinity (with the number of rows) and an unknown preset.
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
    isotropy = log_isotropy(rows)
    row |= {"zeta": cosine.zeta, "zeta_token": cosine.zeta_token}
    row |= {"log_isotropy": isotropy.given, "log_isotropy_scaled": isotropy.scaled}
    if distinct_rows(rows, 2) > 1:
        row |= _local(rows, kinds, options, Null(min_cluster, permutations), seed)
    if "isoscore" in presets:
        row |= _isoscores(np.asarray(row["eigenvalues"]))
    if "cai" in presets:
        row |= _cai(rows, kinds, seed)
    return row | {"reason": "; ".join(_reasons(row, presets, min_cluster)) or None}


def check_states(states: np.ndarray, types: np.ndarray | None) -> None:
    """Health of the states: [N, d], finite, of a usable size, one type a row. Raises ValueError with what is wrong."""
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


class Null(NamedTuple):
    """What ζ′ is taken over and held against."""

    min_cluster: int
    permutations: int


def _local(
    rows: np.ndarray, types: np.ndarray | None, options: ClusterOptions, null: Null, seed: int
) -> dict[str, Any]:
    """Spectrum, clusters and the cosine inside them."""
    spectrum = covariance_spectrum(rows)
    chosen = choose_clusters(rows, options, seed=seed, spectrum=spectrum)
    adjusted = adjusted_cosine(rows, chosen.labels, types, **null._asdict(), seed=seed)
    return {
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


def _isoscores(eigenvalues: np.ndarray) -> dict[str, Any]:
    """IsoScore, and IsoScore* whose target is the mean eigenvalue: free of the states' scale."""
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


def _reasons(row: Mapping[str, Any], presets: Sequence[str], min_cluster: int) -> Iterator[str]:
    """Why measures of the row are None."""
    if row["zeta"] is None:
        yield "zeta: one token type; at least 2 are needed"
    if not row["eigenvalues"]:
        yield "clusters and eigenvalues: all rows are equal"
    elif row["zeta_adjusted"] is None:
        yield f"zeta_adjusted: no cluster of at least {min_cluster} rows and 2 types that differ"
    if "isoscore" in presets and len(row["eigenvalues"]) == 1:
        yield "isoscore: states of width 1; at least 2 are needed"
    if "cai" in presets and row["cai_k"] is None:
        yield f"cai: {row['cai_rows']} types; at least {LEAST_ROWS} are needed, of which 2 differ"


def _nothing() -> dict[str, Any]:
    """Every measured column with no value."""
    others: dict[str, Any] = {"silhouettes": [], "eigenvalues": [], "n_clusters_used": 0, "n_clusters_small": 0}
    return dict.fromkeys(MEASURES) | others

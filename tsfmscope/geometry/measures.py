"""The measures of a layer's states, in the order in which they are computed, and their standard deviations.

CONTRIBUTING.md, "Add a measure", has the steps: an entry of MEASURES with its function here, and the columns
in store/tables/geometry.yaml. Everything else reads the two.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int, Integer

from tsfmscope.geometry.clusters import choose_by_type, choose_clusters, distinct_rows, largest_k
from tsfmscope.geometry.cosine import Cosine, adjusted_cosine, inter_token_cosine, unit_rows
from tsfmscope.geometry.options import ClusterOptions, IsotropyOptions
from tsfmscope.geometry.spectrum import (
    Spectrum,
    covariance_spectrum,
    effective_dimension,
    isoscore,
    isoscore_star,
    partition_isotropy,
    principal_coordinates,
    uncentred_projections,
)

Tokens = Float[np.ndarray, "token width"]
Types = Integer[np.ndarray, " token"]
# Settings of the released analysis.py of Cai et al. 2021 with --cluster.
CAI_OPTIONS = ClusterOptions(k_max=15, restarts=10, min_silhouette=0.1, silhouette_rows=20_000)


@dataclass(frozen=True)
class Cai:
    """Result of `cai`: cosines and clusters of one occurrence per token type.

    - n: number of occurrences.
    - inter_cosine: mean cosine of all pairs; None for fewer than two occurrences.
    - k: number of clusters; silhouettes: mean silhouettes for K = 2, 3, … k is None and silhouettes is empty
      where no clustering exists; a single silhouette is None where it is undefined.
    - cluster_cosine: mean over clusters of the mean cosine within the centred cluster, or None.
    """

    n: int
    inter_cosine: float | None
    k: int | None
    silhouettes: tuple[float | None, ...]
    cluster_cosine: float | None


def cai(states: Tokens, types: Types | None = None, *, seed: int) -> Cai:
    """Measure cosines and clusters on one random occurrence of each token type.

    K-means runs for K = 2..15. Cosines are averaged over all pairs, and within every centred cluster. K has
    the largest mean silhouette (on at most 20,000 points); K is 1 where that silhouette is below 0.1.

    Source: Cai et al. 2021, sections 3 and 4; repository iclr21_isotropy_contxt, analysis.py with --maxl 1
    --inter_cos, and with --maxl 1 --cluster --cluster_cos --center.

    Differences from ζ′: every cluster of two or more rows has equal weight. A zero row has cosine 0 with
    every row, itself included, and 1 is still subtracted for its pair with itself.

    Constant input, a single token, and fewer than 3 occurrences have no clusters: k and cluster_cosine are
    None. NaN and infinity are not accepted (the eigendecomposition raises LinAlgError): check the states
    first. Raises ValueError where types and states differ in length.
    """
    if types is not None and len(types) != len(states):
        raise ValueError(f"types: got {len(types)}, expected one per row, {len(states)}")
    rows = np.asarray(states)
    if types is not None:
        rows = rows[sample_one_per_type(types, np.random.default_rng([seed, 4]))]
    rows = rows.astype(np.float64)
    inter = _mean_cosine(rows)
    if len(rows) < 3 or distinct_rows(rows, 2) < 2:
        return Cai(len(rows), inter, None, (), None)
    clusters = choose_clusters(rows, CAI_OPTIONS, seed=seed)
    members = [rows[clusters.labels == label] for label in range(clusters.k)]
    inside = [_mean_cosine(own - own.mean(axis=0)) for own in members]
    known = [cosine for cosine in inside if cosine is not None]
    return Cai(len(rows), inter, clusters.k, clusters.silhouettes, float(np.mean(known)) if known else None)


def sample_one_per_type(types: Types, rng: np.random.Generator) -> Int[np.ndarray, " type"]:
    """Return the index of one random row of every type, types ascending; each row of a type is equally likely."""
    shuffled = rng.permutation(len(types))
    first = np.unique(np.asarray(types)[shuffled], return_index=True)[1]
    return np.asarray(shuffled[first])


def _mean_cosine(rows: np.ndarray) -> float | None:
    """Return the mean cosine over pairs of different rows, (Σ_ij cos - n) / (n (n - 1)).

    None for fewer than two rows.
    """
    n = len(rows)
    if n < 2:
        return None
    total = unit_rows(rows)[0].sum(axis=0)
    return float((total @ total - n) / (n * (n - 1)))


# Measures that have a standard deviation over random halves of the tokens and new starts of the clustering.
REPEATED = ("zeta", "zeta_adjusted", "zeta_adjusted_corrected", "effective_dimension", "log_isotropy_scaled")
# Share of variance of the effective dimension d(s).
SHARE = 0.8
# Number of leading axes that are recomputed in every half; the other axes stay those of all rows.
AXES = 64
# Draws of the null in one half: cheap, and the error of its mean is half a standard deviation of
# the null.
PERMUTATIONS = 4
# Starts of K-means in one half.
STARTS = 2
# A silhouette needs 2 clusters and at most N - 1 labels.
LEAST_ROWS = 3


class Rows(NamedTuple):
    """Rows with types, and the same rows as `principal_coordinates` and `uncentred_projections` return them."""

    states: Tokens
    types: Types | None
    points: Float[np.ndarray, "token axis"]
    projections: Tokens

    def take(self, rows: Int[np.ndarray, " row"]) -> Rows:
        """Return the selected rows."""
        return Rows(*(None if part is None else np.ascontiguousarray(part[rows]) for part in self))  # type: ignore[arg-type]


def spread_over_halves(rows: Rows, options: IsotropyOptions, *, seed: int) -> dict[str, Any]:
    """Estimate the standard deviation of REPEATED over samples of as many tokens and over cluster starts.

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
    With fewer than 2 LEAST_ROWS rows or fewer than 2 repeats, `repeats` is 0 and every standard deviation is
    None.
    """
    n, m = len(rows.states), len(rows.states) // 2
    if n < 2 * LEAST_ROWS or options.repeats < 2:
        return {"repeats": 0} | {f"{name}_sd": None for name in REPEATED}
    results = []
    for number in range(options.repeats):
        rng = np.random.default_rng([seed, 7, number])
        half = rows.take(np.sort(rng.choice(n, m, replace=False)))
        results.append(_measure_half(half, options, int(rng.integers(2**63))))
    scale, row = float(np.sqrt(m / (n - m))), dict[str, Any](repeats=options.repeats)
    for name in REPEATED:
        known = [value for result in results if (value := result[name]) is not None]
        row[f"{name}_sd"] = scale * float(np.std(known, ddof=1)) if len(known) > 1 else None
    return row


def _measure_half(rows: Rows, options: IsotropyOptions, seed: int) -> dict[str, float | None]:
    """Compute the REPEATED of a half; measures within clusters are None where no K ≥ 2 is possible."""
    # Projections on these rows' own axes in the space of the leading AXES.
    leading = rows.projections[:, :AXES]
    turned = leading @ np.linalg.eigh(leading.T @ leading)[1]
    own_axes = np.concatenate([turned, rows.projections[:, AXES:]], axis=1)
    row: dict[str, float | None] = dict.fromkeys(REPEATED)
    row["zeta"] = inter_token_cosine(rows.states, rows.types).zeta
    row["log_isotropy_scaled"] = partition_isotropy(own_axes).scaled
    if largest_k(rows.states, 2) < 2:
        return row
    few_starts = options.model_copy(update={"restarts": STARTS})
    labels = choose_by_type(rows.states, rows.types, rows.points, few_starts, seed=seed, quick=True).labels
    cosine = adjusted_cosine(
        rows.points, labels, rows.types, min_cluster=max(2, (options.min_cluster + 1) // 2),
        permutations=min(options.permutations, PERMUTATIONS), seed=seed,
    )  # fmt: skip
    row["effective_dimension"] = float(effective_dimension(_variances(rows.points), SHARE))
    return row | {"zeta_adjusted": cosine.mean, "zeta_adjusted_corrected": cosine.permuted.excess}


def _variances(points: Float[np.ndarray, "token axis"]) -> Float[np.ndarray, " axis"]:
    """Return eigenvalues of the covariance's block of the leading AXES, and variances along the other axes.

    Both lack the factor 1/(N - 1), which does not change shares of variance.
    """
    centred = points - points.mean(axis=0)
    leading = np.linalg.eigvalsh(centred[:, :AXES].T @ centred[:, :AXES])
    return np.concatenate([np.maximum(leading, 0.0), np.einsum("nd,nd->d", centred[:, AXES:], centred[:, AXES:])])


# Version of the rows: raise it when a measure is added, or when a number of an existing one changes. It enters
# the key of every job of the stage geometry, so that all layers are measured again.
VERSION = 6
# Significance level: with p above it, ζ′ lies inside the central 95 % of its null.
LEVEL = 0.05
# Range of the largest entry in which squares and their products stay inside float64.
SMALL, LARGE = 1e-100, 1e100


@dataclass(frozen=True, eq=False)
class States:
    """States of one layer, as the measures read them.

    rows: the states that are not zero, in float64. types: their token types; None: every row is its own type.
    cosine: the inter-token cosine.
    """

    rows: Tokens
    types: Types | None
    cosine: Cosine
    options: IsotropyOptions
    seed: int

    @cached_property
    def projections(self) -> Tokens:
        """Projections of the rows on their uncentred principal axes."""
        return uncentred_projections(self.rows)

    @cached_property
    def is_constant(self) -> bool:
        """Whether all rows are equal."""
        return distinct_rows(self.rows, 2) < 2

    @cached_property
    def spectrum(self) -> Spectrum:
        """Eigenvalues and axes of the covariance of the rows."""
        return covariance_spectrum(self.rows)

    @property
    def eigenvalues(self) -> Float[np.ndarray, " width"]:
        """Eigenvalues of the covariance of the rows, descending; empty where all rows are equal."""
        return np.zeros(0) if self.is_constant else self.spectrum.eigenvalues


@dataclass(frozen=True)
class Measure:
    """One measure, or several that are computed together.

    columns: its columns of the table `geometry`. compute: returns values of these columns, and under "reason"
    the cause of a value that is None. others: further columns, with their values where nothing was measured.
    preset: the preset that requests the measure; empty: every row has it.
    """

    columns: tuple[str, ...]
    compute: Callable[[States], Mapping[str, Any]]
    others: Mapping[str, Any] = field(default_factory=dict)
    preset: str = ""


def _cosine(states: States) -> dict[str, Any]:
    """Return the mean cosine between tokens."""
    zeta = states.cosine.zeta
    reason = "zeta: one token type; at least 2 are needed" if zeta is None else None
    return {"zeta": zeta, "zeta_token": states.cosine.zeta_token, "reason": reason}


def _dimension(states: States) -> dict[str, Any]:
    """Return d(0.8) over the width."""
    values = states.eigenvalues
    return {"dimension_share": effective_dimension(values, SHARE) / len(values) if len(values) else None}


def _clusters(states: States) -> dict[str, Any]:
    """Compute the spectrum, the clusters, the cosine within them, and standard deviations."""
    if states.is_constant:
        return {"reason": "clusters and eigenvalues: all rows are equal"}
    rows, types, spectrum, options = states.rows, states.types, states.spectrum, states.options
    points = principal_coordinates(rows, spectrum)
    clusters = choose_by_type(rows, types, points, options, seed=states.seed)
    adjusted = adjusted_cosine(
        rows, clusters.labels, types, min_cluster=options.min_cluster, permutations=options.permutations,
        directions=options.permutations, seed=states.seed,
    )  # fmt: skip
    row = {
        "k": clusters.k,
        "silhouettes": list(clusters.silhouettes),
        "n_clusters_used": adjusted.used,
        "n_clusters_small": adjusted.small,
        "zeta_adjusted": adjusted.mean,
        "zeta_adjusted_weighted": adjusted.weighted,
        "zeta_adjusted_floor": adjusted.floor,
        "zeta_adjusted_corrected": adjusted.permuted.excess,
        "zeta_adjusted_null": adjusted.permuted.mean,
        "zeta_adjusted_null_sd": adjusted.permuted.sd,
        "zeta_adjusted_p": adjusted.permuted.p,
        "zeta_adjusted_directions": adjusted.directed.mean,
        "zeta_adjusted_directions_sd": adjusted.directed.sd,
        "zeta_adjusted_directions_p": adjusted.directed.p,
        "zeta_adjusted_excess": adjusted.directed.excess,
        "zeta_adjusted_isotropic": None if adjusted.directed.p is None else adjusted.directed.p > LEVEL,
        "eigenvalues": spectrum.eigenvalues.tolist(),
        "reason": None,
    }
    if adjusted.mean is None:
        others = clusters.k - adjusted.small
        rest = f"; {others} of {clusters.k} hold one token type or equal rows" if others > 0 else ""
        least = options.min_cluster
        row["reason"] = f"zeta_adjusted: no cluster of at least {least} rows and 2 types that differ{rest}"
    elif adjusted.permuted.mean is None:
        row["reason"] = f"nulls of zeta_adjusted: {options.permutations} permutations; at least 2 are needed"
    if not clusters.silhouettes:
        row["reason"] = "; ".join(filter(None, ["silhouettes: fewer than 3 token types that differ", row["reason"]]))
    every_row = Rows(rows, types, points, states.projections)
    return row | spread_over_halves(every_row, options, seed=states.seed)


def _partition(states: States) -> dict[str, Any]:
    """Return the partition isotropy, of the states and of the states with root mean square norm √d."""
    isotropy = partition_isotropy(states.projections)
    return {"log_isotropy": isotropy.unscaled, "log_isotropy_scaled": isotropy.scaled}


def _isoscores(states: States) -> dict[str, Any]:
    """Compute IsoScore, and IsoScore* with the mean eigenvalue as target, so that it does not depend on scale."""
    values = states.eigenvalues
    star = isoscore_star(values, target=float(values.sum() / max(len(values), 1)))
    reason = "isoscore: states of width 1; at least 2 are needed" if len(values) == 1 else None
    return {"isoscore": isoscore(values), "isoscore_star": star, "reason": reason}


def _cai(states: States) -> dict[str, Any]:
    """Return the measures of Cai et al. 2021 as their released code takes them."""
    peer = cai(states.rows, states.types, seed=states.seed)
    reason = f"cai: {peer.n} types; at least {LEAST_ROWS} are needed, of which 2 differ" if peer.k is None else None
    return {
        "cai_rows": peer.n,
        "cai_cosine": peer.inter_cosine,
        "cai_k": peer.k,
        "cai_silhouettes": list(peer.silhouettes),
        "cai_cluster_cosine": peer.cluster_cosine,
        "reason": reason,
    }


CLUSTER_COLUMNS = (
    "k", "zeta_adjusted", "zeta_adjusted_weighted", "zeta_adjusted_floor", "zeta_adjusted_corrected",
    "zeta_adjusted_null", "zeta_adjusted_null_sd", "zeta_adjusted_p", "zeta_adjusted_directions",
    "zeta_adjusted_directions_sd", "zeta_adjusted_directions_p", "zeta_adjusted_excess", "zeta_adjusted_isotropic",
)  # fmt: skip
MEASURES: tuple[Measure, ...] = (
    Measure(("zeta", "zeta_token"), _cosine),
    Measure(
        CLUSTER_COLUMNS,
        _clusters,
        dict.fromkeys(f"{name}_sd" for name in REPEATED)
        | {"silhouettes": [], "eigenvalues": [], "n_clusters_used": 0, "n_clusters_small": 0, "repeats": 0},
    ),
    Measure(("dimension_share",), _dimension),
    Measure(("log_isotropy", "log_isotropy_scaled"), _partition),
    Measure(("isoscore", "isoscore_star"), _isoscores, preset="isoscore"),
    # It clusters again, with K up to 15, which more than doubles the time of a row.
    Measure(("cai_rows", "cai_cosine", "cai_k", "cai_silhouettes", "cai_cluster_cosine"), _cai, preset="cai"),
)


def presets() -> list[str]:
    """Return the names of the presets, in the order of MEASURES."""
    return list(dict.fromkeys(measure.preset for measure in MEASURES if measure.preset))


def unmeasured_columns() -> dict[str, Any]:
    """Return every column of MEASURES with its value where nothing was measured."""
    row: dict[str, Any] = {name: None for measure in MEASURES for name in measure.columns}
    for measure in MEASURES:
        row |= {name: list(value) if isinstance(value, list) else value for name, value in measure.others.items()}
    return row


def requested_measures(preset_names: Sequence[str]) -> list[Measure]:
    """Return the measures of a row with these presets. Raises ValueError for an unknown preset."""
    if unknown := set(preset_names) - set(presets()):
        raise ValueError(f"presets: got {sorted(unknown)}, expected some of {presets()}")
    return [measure for measure in MEASURES if not measure.preset or measure.preset in preset_names]


# Columns with one value per direction, or per candidate number of clusters.
LIST_COLUMNS = tuple(name for name, value in unmeasured_columns().items() if isinstance(value, list))


def subsample(states: Tokens, types: Types | None, tokens: int, *, seed: int) -> tuple[np.ndarray, np.ndarray | None]:
    """Draw at most `tokens` rows without replacement, in their order: ζ, d(0.8) and K depend on N."""
    if len(states) <= tokens:
        return states, types
    rows = np.sort(np.random.default_rng([seed, 2]).choice(len(states), tokens, replace=False))
    return states[rows], None if types is None else types[rows]


def measure_states(
    states: Tokens,
    types: Types | None = None,
    options: IsotropyOptions | None = None,
    *,
    presets: Sequence[str] = ("isoscore",),
    seed: int,
) -> dict[str, Any]:
    """Compute the measures of docs/science.md, Isotropy, as columns of `geometry`.

    Source: Shelim et al. 2025, eqs. 1, 5 and 6, and section 4.1. presets: measures of other papers to add.

    Rows of norm 0 are counted in n_tokens and n_zero and left out of every measure. A measure that the states
    do not define (one token, one type, equal rows, all zero) is None, or an empty list for a list column, and
    `reason` gives the cause. No measure is ever NaN. Raises ValueError for a wrong shape, for NaN or infinity
    (with the number of rows), and for an unknown preset.
    """
    measures = requested_measures(presets)
    check_states(states, types)
    cosine = inter_token_cosine(states, types)
    is_used = np.asarray(states).any(axis=1)
    rows = np.asarray(states)[is_used].astype(np.float64)
    row = unmeasured_columns() | {"n_tokens": len(states), "n_types": cosine.n_types, "n_zero": cosine.n_zero}
    if len(rows) < LEAST_ROWS:
        return row | {"reason": f"{len(rows)} rows that are not zero; at least {LEAST_ROWS} are needed"}
    used_types = None if types is None else np.asarray(types)[is_used]
    layer = States(rows, used_types, cosine, options or IsotropyOptions(), seed)
    reasons = []
    for measure in measures:
        values = dict(measure.compute(layer))
        reasons.append(values.pop("reason", None))
        row |= values
    return row | {"reason": "; ".join(filter(None, reasons)) or None}


def check_states(states: np.ndarray, types: np.ndarray | None) -> None:
    """Raise ValueError unless the states are [N, d], finite, of usable size, and have one type per row."""
    if states.ndim != 2 or states.shape[1] < 1:
        raise ValueError(f"states: got shape {states.shape}, expected [token, width]")
    if types is not None and np.shape(types) != (len(states),):
        raise ValueError(f"types: got shape {np.shape(types)}, expected one per row, ({len(states)},)")
    bad = int(np.count_nonzero(~np.isfinite(states).all(axis=1)))
    if bad:
        raise ValueError(f"states: {bad} of {len(states)} rows contain NaN or infinity; check the model and its dtype")
    largest = float(np.abs(states).max(initial=0))
    if largest and not SMALL <= largest <= LARGE:
        raise ValueError(f"states: largest entry {largest:.3g}, expected 0 or {SMALL:g} to {LARGE:g}; scale them")

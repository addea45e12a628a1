"""The measures of a layer's states, in the order in which they are computed.

CONTRIBUTING.md, "Add a measure", has the steps: an entry of MEASURES with its function here, and the columns
in store/tables/geometry.yaml. Everything else reads the two.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Float, Integer

from tsfmscope.geometry.adjusted import adjusted_cosine
from tsfmscope.geometry.cai import cai
from tsfmscope.geometry.clusters import choose_among, distinct_rows
from tsfmscope.geometry.cosine import Cosine, inter_token_cosine
from tsfmscope.geometry.dimension import Spectrum, covariance_spectrum, principal_coordinates
from tsfmscope.geometry.isoscore import isoscore, isoscore_star
from tsfmscope.geometry.options import IsotropyOptions
from tsfmscope.geometry.partition import partition_isotropy, uncentred_projections
from tsfmscope.geometry.repeats import MEASURES as REPEATED
from tsfmscope.geometry.repeats import Rows, spread_over_halves

# Version of the rows: raise it when a measure is added, or when a number of an existing one changes. It enters
# the key of every job of the stage geometry, so that all layers are measured again.
VERSION = 5
# Significance level: with p above it, ζ′ lies inside the central 95 % of its null.
LEVEL = 0.05
# Range of the largest entry in which squares and their products stay inside float64.
SMALL, LARGE = 1e-100, 1e100
# A silhouette needs 2 clusters and at most N - 1 labels.
LEAST_ROWS = 3


@dataclass(frozen=True, eq=False)
class States:
    """States of one layer, as the measures read them.

    rows: the states that are not zero, in float64. types: their token types; None: every row is its own type.
    cosine: the inter-token cosine.
    """

    rows: Float[np.ndarray, "token width"]
    types: Integer[np.ndarray, " token"] | None
    cosine: Cosine
    options: IsotropyOptions
    seed: int

    @cached_property
    def projections(self) -> Float[np.ndarray, "token width"]:
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
    row = {"zeta": states.cosine.zeta, "zeta_token": states.cosine.zeta_token}
    if row["zeta"] is None:
        return row | {"reason": "zeta: one token type; at least 2 are needed"}
    return row


def _clusters(states: States) -> dict[str, Any]:
    """Compute the spectrum, the clusters, the cosine within them, and standard deviations."""
    if states.is_constant:
        return {"reason": "clusters and eigenvalues: all rows are equal"}
    rows, types, spectrum, options = states.rows, states.types, states.spectrum, states.options
    points = principal_coordinates(rows, spectrum)
    clusters = choose_among(rows, points, options, seed=states.seed)
    adjusted = adjusted_cosine(
        rows,
        clusters.labels,
        types,
        min_cluster=options.min_cluster,
        permutations=options.permutations,
        seed=states.seed,
    )
    row = {
        "k": clusters.k,
        "silhouettes": list(clusters.silhouettes),
        "n_clusters_used": adjusted.used,
        "n_clusters_small": adjusted.small,
        "zeta_adjusted": adjusted.mean,
        "zeta_adjusted_weighted": adjusted.weighted,
        "zeta_adjusted_floor": adjusted.floor,
        "zeta_adjusted_corrected": adjusted.corrected,
        "zeta_adjusted_null": adjusted.null,
        "zeta_adjusted_null_sd": adjusted.null_sd,
        "zeta_adjusted_p": adjusted.p,
        # With a vocabulary, the test rejects 10 to 26 % of isotropic types (docs/science.md, Adjusted cosine).
        "zeta_adjusted_isotropic": None if adjusted.p is None or types is not None else adjusted.p > LEVEL,
        "eigenvalues": spectrum.eigenvalues.tolist(),
        "reason": None,
    }
    if adjusted.mean is None:
        others = clusters.k - adjusted.small
        rest = f"; {others} of {clusters.k} hold one token type or equal rows" if others > 0 else ""
        row["reason"] = (
            f"zeta_adjusted: no cluster of at least {options.min_cluster} rows and 2 types that differ{rest}"
        )
    elif adjusted.null is None:
        row["reason"] = f"zeta_adjusted_null and _corrected: {options.permutations} permutations; at least 2 are needed"
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


MEASURES: tuple[Measure, ...] = (
    Measure(("zeta", "zeta_token"), _cosine),
    Measure(
        (
            "k",
            "zeta_adjusted",
            "zeta_adjusted_weighted",
            "zeta_adjusted_floor",
            "zeta_adjusted_corrected",
            "zeta_adjusted_null",
            "zeta_adjusted_null_sd",
            "zeta_adjusted_p",
            "zeta_adjusted_isotropic",
        ),
        _clusters,
        dict.fromkeys(f"{name}_sd" for name in REPEATED)
        | {"silhouettes": [], "eigenvalues": [], "n_clusters_used": 0, "n_clusters_small": 0, "repeats": 0},
    ),
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


def subsample(
    states: Float[np.ndarray, "token width"], types: Integer[np.ndarray, " token"] | None, tokens: int, *, seed: int
) -> tuple[np.ndarray, np.ndarray | None]:
    """Draw at most `tokens` rows without replacement, in their order: ζ, d(0.8) and K depend on N."""
    if len(states) <= tokens:
        return states, types
    rows = np.sort(np.random.default_rng([seed, 2]).choice(len(states), tokens, replace=False))
    return states[rows], None if types is None else types[rows]


def measure_states(
    states: Float[np.ndarray, "token width"],
    types: Integer[np.ndarray, " token"] | None = None,
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

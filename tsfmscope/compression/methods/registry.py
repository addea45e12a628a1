"""All truncation methods, by name, and the candidates of a model's layers."""

from __future__ import annotations

from collections.abc import Container, Sequence

import numpy as np

from tsfmscope.compression.candidates import Candidate, separate_idle
from tsfmscope.compression.methods.allocation import one_share, one_tolerance
from tsfmscope.compression.methods.head_products import head_products
from tsfmscope.compression.methods.interface import Statistics, Truncation
from tsfmscope.compression.methods.peers import fisher_svd, general_fisher_svd, kfac_svd, scaled_svd, whitened_svd
from tsfmscope.compression.methods.whole_matrices import projected_matrices, single_matrices
from tsfmscope.compression.methods.zero_sum import zero_sum
from tsfmscope.errors import ModelError
from tsfmscope.models.common.attention import AttentionLayer

TRUNCATIONS: dict[str, Truncation] = {
    "svd": Truncation(single_matrices, allocate=one_tolerance),
    "joint": Truncation(head_products),
    "activation-aware-svd": Truncation(single_matrices, "inputs"),
    "activation-aware": Truncation(head_products, "inputs"),
    "project": Truncation(projected_matrices, "inputs"),
    "asvd": Truncation(scaled_svd, "gradients", one_share),
    "svd-llm": Truncation(whitened_svd, "gradients", one_share),
    "fwsvd": Truncation(fisher_svd, "gradients", one_share),
    "gfwsvd": Truncation(general_fisher_svd, "gradients", one_share),
    "kfac-svd": Truncation(kfac_svd, "gradients", one_share),
    "zs-svd": Truncation(whitened_svd, "gradients", zero_sum),
}


def list_candidates(
    method: str,
    layers: Sequence[AttentionLayer],
    statistics: Statistics | None,
    idle: Container[tuple[str, str, str]] = frozenset(),
) -> list[Candidate]:
    """Return the candidates of every layer for the method.

    statistics: of the kind that the method reads. idle: matrices without effect, as `candidates.inert_matrices` lists
    them. Their parts have shares of 0, so that a budget leaves them at rank 1 with every method. ValueError for an
    unknown method, and if statistics that the method reads are missing. ModelError if weights contain NaN or infinity.
    """
    if method not in TRUNCATIONS:
        raise ValueError(f"method: got {method!r}, expected one of {sorted(TRUNCATIONS)}")
    truncation, statistics = TRUNCATIONS[method], statistics or {}
    reads_data = truncation.reads != "nothing"
    missing = [layer.name for layer in layers if layer.name not in statistics]
    if reads_data and missing:
        raise ValueError(
            f"method {method}: no {truncation.reads} of {missing[:3]}; gather them over calibration windows"
        )
    candidates: list[Candidate] = []
    for layer in layers:
        projections = layer.read()
        if not all(np.isfinite(array).all() for array in projections if array is not None):
            raise ModelError(f"{layer.name}: weights contain NaN or infinity; check the checkpoint and its dtype")
        for candidate in truncation.candidates(layer, projections, statistics[layer.name] if reads_data else None):
            candidates += separate_idle(candidate, idle)
    return candidates

"""Methods svd, activation-aware-svd and project: whole matrices as two thin factors."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tsfmscope.compression import matrices
from tsfmscope.compression.calibration import Moments
from tsfmscope.compression.candidates import Candidate, dense_matrices, matrices_candidate
from tsfmscope.models.common.attention import AttentionLayer, Projections


def single_matrices(layer: AttentionLayer, projections: Projections, moments: Moments | None) -> Iterator[Candidate]:
    """Yield every matrix of a layer as a candidate of its own."""
    for name, matrix in dense_matrices(layer).items():
        if moments is None:
            factors = matrices.plain_factors(matrix)
        else:
            factors = matrices.weighted_factors(matrix, _input_factor(layer, name, moments))
        yield matrices_candidate(layer, {name: matrix}, [factors], min(matrix.shape))


def projected_matrices(layer: AttentionLayer, projections: Projections, moments: Moments | None) -> Iterator[Candidate]:
    """Yield Q, K and V together, projected on the leading directions of their inputs."""
    assert moments is not None, "`list_candidates` checks it"
    by_name = {name: matrix for name, matrix in dense_matrices(layer).items() if name != "o"}
    inputs = {"q": moments.queries[:, 1:], "k": moments.inputs[:, 1:], "v": moments.inputs[:, 1:]}
    factors = [matrices.projected_factors(matrix, inputs[name]) for name, matrix in by_name.items()]
    yield matrices_candidate(layer, by_name, factors, min(matrix.shape[1] for matrix in by_name.values()))


def _input_factor(layer: AttentionLayer, name: str, moments: Moments) -> np.ndarray:
    """Return the R factor of a matrix's inputs.

    The inputs of plain keys are centred: their mean adds the same to all scores of a query, which the softmax
    ignores, and it would otherwise dominate. The inputs of rotated or normed keys are not centred, since
    their mean does not add the same to all scores of a query.
    """
    if name == "k" and layer.plain:
        return moments.keys
    roots = {"q": moments.queries, "k": moments.inputs, "v": moments.inputs, "o": moments.head_outputs}
    return roots[name][:, 1:]

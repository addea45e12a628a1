"""Published methods for single matrices, whose errors have weights on inputs, on outputs, or on both.

Each minimises ‖B^½ (W − W̃) A^½‖ with weights A of the inputs and B of the outputs:

| method | A | B |
| --- | --- | --- |
| asvd | diag(mean \\|x\\|)^2α, α = 0.5 | I |
| svd-llm, zs-svd | E x xᵀ | I |
| fwsvd | diag of the Fisher information, mean over the outputs | I |
| gfwsvd | right factor of the Fisher information | left factor |
| kfac-svd | E x xᵀ | E g gᵀ |

Weights of zero, as for a matrix without effect on the loss, become I, so that the result is the plain SVD.

Sources: ASVD arXiv 2312.05821; SVD-LLM arXiv 2403.07378 (ICLR 2025); FWSVD arXiv 2207.00112 (ICLR 2022); GFWSVD arXiv
2505.17974; KFAC-SVD in LEMS (ICML 2026), whose public code contains the other methods too.
Deviations from that code:
- Only rows with a gradient count. There, all tokens count, and for E g gᵀ of KFAC-SVD those between the first and the
  last eighth of a text.
- ASVD is that of its paper; there, maxima of |x| with α = 1.
- GFWSVD and KFAC-SVD use square roots of A and B. There, the lower Cholesky factor L of B stands left of W, which gives
  outputs the weights LᵀL instead of B = L Lᵀ.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np
from jaxtyping import Float

from tsfmscope.compression.candidates import Candidate, dense_matrices, matrices_candidate
from tsfmscope.compression.loss_statistics import LossStatistics
from tsfmscope.compression.matrices import two_sided_factors, weighted_factors
from tsfmscope.compression.products import Factors
from tsfmscope.models.common.attention import AttentionLayer, Projections

# Exponent of the mean magnitudes (ASVD).
ALPHA = 0.5
# Shares of the mean variance in the weights of inputs and of outputs (public code of KFAC-SVD).
KFAC_SHRINKAGE = (0.1, 0.3)
# Share of the mean variance in a factor that is not positive definite in float32 (public code of GFWSVD, which tries a
# Cholesky decomposition).
GFWSVD_SHRINKAGE = 0.2
# Steps of the power iteration for the factors of the Fisher information.
ITERATIONS = 50
# Share of the mean weight that is added to diagonal weights, so that no input has weight zero.
SMALLEST = 1e-6

Factorise = Callable[[np.ndarray, LossStatistics], Factors]
ByMatrix = Mapping[str, LossStatistics]


def _by_matrix(factorise: Factorise) -> Callable[[AttentionLayer, Projections, ByMatrix], Iterator[Candidate]]:
    """Return a builder of candidates that factorises every matrix of a layer by itself."""

    def candidates(layer: AttentionLayer, _: Projections, statistics: ByMatrix) -> Iterator[Candidate]:
        for name, matrix in dense_matrices(layer).items():
            factors = factorise(matrix, statistics[name])
            yield matrices_candidate(layer, {name: matrix}, [factors], min(matrix.shape))

    return candidates


def asvd(matrix: Float[np.ndarray, "out in"], statistics: LossStatistics) -> Factors:
    """Return factors with columns scaled by the mean magnitude of their inputs, to the power ALPHA."""
    return weighted_factors(matrix, diagonal(statistics.magnitudes**ALPHA))


def svd_llm(matrix: Float[np.ndarray, "out in"], statistics: LossStatistics) -> Factors:
    """Return the factors with the least mean squared error of the outputs."""
    return weighted_factors(matrix, root(statistics.inputs))


def fwsvd(matrix: Float[np.ndarray, "out in"], statistics: LossStatistics) -> Factors:
    """Return factors with columns weighed by the square root of their mean Fisher information."""
    information = np.square(statistics.gradients, dtype=np.float64).mean(axis=(0, 1))
    return weighted_factors(matrix, diagonal(np.sqrt(information)))


def gfwsvd(matrix: Float[np.ndarray, "out in"], statistics: LossStatistics) -> Factors:
    """Return factors weighed by the Kronecker product that is nearest to the Fisher information."""
    left, right = map(shrink_singular, kronecker_factors(statistics.gradients))
    return two_sided_factors(matrix, root(left), root(right))


def kfac(matrix: Float[np.ndarray, "out in"], statistics: LossStatistics) -> Factors:
    """Return factors weighed by the second moments of inputs and of gradients by the outputs."""
    inputs, outputs = shrink(statistics.inputs, KFAC_SHRINKAGE[0]), shrink(statistics.outputs, KFAC_SHRINKAGE[1])
    return two_sided_factors(matrix, root(outputs), root(inputs))


def kronecker_factors(
    gradients: Float[np.ndarray, "group out in"],
) -> tuple[Float[np.ndarray, "out out"], Float[np.ndarray, "in in"]]:
    """Return the factors L and R of the Kronecker product nearest to the mean of vec(G) vec(G)ᵀ.

    L ∝ mean G R Gᵀ and R ∝ mean Gᵀ L G are the leading singular pair of the rearranged matrix (Van Loan and Pitsianis
    1993), by power iteration from R = I. Both have the same Frobenius norm. Zeros for gradients of zero.
    """
    largest = float(np.abs(gradients).max(initial=0.0))
    _, n_out, n_in = gradients.shape
    if not largest:
        return np.zeros((n_out, n_out)), np.zeros((n_in, n_in))
    scaled, right = gradients.astype(np.float64) / largest, np.eye(n_in)
    for _ in range(ITERATIONS):
        left = np.mean(scaled @ right @ scaled.transpose(0, 2, 1), axis=0)
        left /= np.linalg.norm(left)
        right = np.mean(scaled.transpose(0, 2, 1) @ left @ scaled, axis=0)
        size = np.linalg.norm(right)
        right /= size
    half = np.sqrt(size) * largest
    return left * half, right * half


def diagonal(weights: Float[np.ndarray, " n"]) -> Float[np.ndarray, "n n"]:
    """Return the diagonal matrix of the weights plus SMALLEST times their mean; I for weights of zero."""
    return np.diag(weights + SMALLEST * weights.mean()) if weights.any() else np.eye(len(weights))


def shrink(moments: Float[np.ndarray, "n n"], share: float) -> Float[np.ndarray, "n n"]:
    """Return (1 − share) moments + share times the mean variance times I."""
    variance = float(np.trace(moments)) / len(moments)
    return (1 - share) * moments + share * variance * np.eye(len(moments))


def shrink_singular(moments: Float[np.ndarray, "n n"]) -> Float[np.ndarray, "n n"]:
    """Return the moments, shrunk by GFWSVD_SHRINKAGE if they are not positive definite in float32."""
    values = np.linalg.eigvalsh(moments)
    is_definite = values[0] > np.finfo(np.float32).eps * values[-1]
    return moments if is_definite else shrink(moments, GFWSVD_SHRINKAGE)


def root(moments: Float[np.ndarray, "n n"]) -> Float[np.ndarray, "n n"]:
    """Return the symmetric square root; I for moments of zero.

    Negative eigenvalues, which are rounding, count as zero.
    """
    if not moments.any():
        return np.eye(len(moments))
    values, vectors = np.linalg.eigh(moments)
    matrix: np.ndarray = (vectors * np.sqrt(np.maximum(values, 0))) @ vectors.T
    return matrix


scaled_svd, whitened_svd, fisher_svd = _by_matrix(asvd), _by_matrix(svd_llm), _by_matrix(fwsvd)
general_fisher_svd, kfac_svd = _by_matrix(gfwsvd), _by_matrix(kfac)

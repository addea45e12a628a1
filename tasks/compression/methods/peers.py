"""Published methods for single matrices, whose errors have weights on inputs, on outputs, or on both.

Each minimises ‖B^½ (W − W̃) A^½‖ with weights A of the inputs and B of the outputs:

| method | A | B |
| --- | --- | --- |
| asvd | diag(mean \\|x\\|)^2α, α = 0.5 | I |
| svd-llm, zs-svd | E x xᵀ | I |
| fwsvd | diag of the Fisher information, mean over the outputs | I |
| gfwsvd | right factor of the Fisher information | left factor |
| kfac-svd | E x xᵀ | E g gᵀ |

Sources: ASVD arXiv 2312.05821; SVD-LLM arXiv 2403.07378 (ICLR 2025); FWSVD arXiv 2207.00112 (ICLR 2022); GFWSVD arXiv
2505.17974; KFAC-SVD in LEMS (ICML 2026). Deviations: constants of shrinkage are those of the public code; KFAC-SVD
there leaves out the first and last eighth of a text's tokens, here no token.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np
from jaxtyping import Float

from tsfmscope.tasks.compression.candidates import Candidate, dense_matrices, matrices_candidate
from tsfmscope.tasks.compression.loss_statistics import LossStatistics
from tsfmscope.tasks.compression.matrices import two_sided_factors, weighted_factors
from tsfmscope.tasks.compression.products import Factors
from tsfmscope.tasks.models.common.attention import AttentionLayer, Projections

# Exponent of the mean magnitudes (ASVD).
ALPHA = 0.5
# Shares of the mean variance in the weights of inputs and of outputs.
KFAC_SHRINKAGE = (0.1, 0.3)
GFWSVD_SHRINKAGE = (0.1, 0.1)
# Steps of the power iteration for the factors of the Fisher information.
ITERATIONS = 50
# Added to diagonal weights, so that no input has weight zero.
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
    return weighted_factors(matrix, np.diag(statistics.magnitudes**ALPHA + SMALLEST))


def svd_llm(matrix: Float[np.ndarray, "out in"], statistics: LossStatistics) -> Factors:
    """Return the factors with the least mean squared error of the outputs."""
    return weighted_factors(matrix, root(statistics.inputs))


def fwsvd(matrix: Float[np.ndarray, "out in"], statistics: LossStatistics) -> Factors:
    """Return factors with columns weighed by the square root of their mean Fisher information."""
    information = np.square(statistics.gradients).mean(axis=(0, 1))
    return weighted_factors(matrix, np.diag(np.sqrt(information) + SMALLEST * np.sqrt(information.mean())))


def gfwsvd(matrix: Float[np.ndarray, "out in"], statistics: LossStatistics) -> Factors:
    """Return factors weighed by the Kronecker product that is nearest to the Fisher information."""
    left, right = kronecker_factors(statistics.gradients)
    return two_sided_factors(matrix, root(shrink(left, GFWSVD_SHRINKAGE[1])), root(shrink(right, GFWSVD_SHRINKAGE[0])))


def kfac(matrix: Float[np.ndarray, "out in"], statistics: LossStatistics) -> Factors:
    """Return factors weighed by the second moments of inputs and of output gradients."""
    inputs, outputs = shrink(statistics.inputs, KFAC_SHRINKAGE[0]), shrink(statistics.outputs, KFAC_SHRINKAGE[1])
    return two_sided_factors(matrix, root(outputs), root(inputs))


def kronecker_factors(
    gradients: Float[np.ndarray, "group out in"],
) -> tuple[Float[np.ndarray, "out out"], Float[np.ndarray, "in in"]]:
    """Return the factors L and R of the Kronecker product nearest to the mean of vec(G) vec(G)ᵀ.

    L = mean G R Gᵀ and R = mean Gᵀ L G, the leading singular pair of the rearranged matrix (Van Loan), by power
    iteration from R = I. The pair is scaled to equal Frobenius norms. Zeros for gradients of zero.
    """
    largest = np.abs(gradients).max(initial=0.0)
    scaled = gradients / largest if largest else gradients
    right = np.eye(gradients.shape[2])
    left = np.zeros((gradients.shape[1],) * 2)
    if not largest:
        return left, np.zeros_like(right)
    for _ in range(ITERATIONS):
        left = np.mean(scaled @ right @ scaled.transpose(0, 2, 1), axis=0)
        left /= np.linalg.norm(left)
        right = np.mean(scaled.transpose(0, 2, 1) @ left @ scaled, axis=0)
        size = np.linalg.norm(right)
        right /= size
    half = np.sqrt(size) * largest
    return left * half, right * half


def shrink(moments: Float[np.ndarray, "n n"], share: float) -> Float[np.ndarray, "n n"]:
    """Return (1 − share) moments + share times the mean variance times I; I for moments of zero."""
    variance = float(np.trace(moments)) / len(moments)
    if variance <= 0:
        return np.eye(len(moments))
    return (1 - share) * moments + share * variance * np.eye(len(moments))


def root(moments: Float[np.ndarray, "n n"]) -> Float[np.ndarray, "n n"]:
    """Return the symmetric square root; small negative eigenvalues, which are rounding, count as zero."""
    values, vectors = np.linalg.eigh(moments)
    matrix: np.ndarray = (vectors * np.sqrt(np.maximum(values, 0))) @ vectors.T
    return matrix


scaled_svd, whitened_svd, fisher_svd = _by_matrix(asvd), _by_matrix(svd_llm), _by_matrix(fwsvd)
general_fisher_svd, kfac_svd = _by_matrix(gfwsvd), _by_matrix(kfac)

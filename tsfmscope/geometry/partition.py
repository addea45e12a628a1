"""Partition isotropy, computed in log space."""

from __future__ import annotations

import functools
import operator
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from tsfmscope.geometry.dimension import axes_of_few_rows, is_wide
from tsfmscope.geometry.parallel import blas_workers, chunks


class LogIsotropy(NamedTuple):
    """log I of the states as given, and of the states scaled to root mean square norm √d."""

    unscaled: float
    scaled: float


def log_isotropy(states: Float[np.ndarray, "token width"]) -> LogIsotropy:
    """Return log I of the states, at most 0, as given and scaled.

        log I = min log Z(c) - max log Z(c),  Z(c) = Σ_i exp(ψ_i · c)

    Source: Shelim et al. 2025, eq. 5; Mu & Viswanath 2018. c runs over + and - every unit eigenvector of ΨᵀΨ.
    The original papers use one arbitrary sign, which is not reproducible; this value is never larger than
    theirs. A direction in which every row is 0 has Z = N. I depends on scale, so only `scaled`, for ψ √d /
    rms‖ψ‖, compares models.

    Equal rows ψ, and a single row, give -2‖ψ‖ as given and -2√d scaled. NaN and infinity are not accepted
    (the decomposition raises LinAlgError). Raises ValueError where every row is 0.
    """
    return partition_isotropy(uncentred_projections(states))


def uncentred_projections(states: Float[np.ndarray, "token width"]) -> Float[np.ndarray, "token width"]:
    """Project rows onto the eigenvectors of ΨᵀΨ, leading one first. Raises ValueError where every row is 0."""
    rows = np.asarray(states)
    if not rows.any():
        raise ValueError("states: every row is zero; expected at least one that is not")
    if is_wide(*rows.shape):
        exact = rows.astype(np.float64)
        directions, projections = axes_of_few_rows(exact)[1], np.zeros(rows.shape)
        with blas_workers():
            np.matmul(exact, directions, out=projections[:, : directions.shape[1]])
        return projections

    def products(part: slice) -> Float[np.ndarray, "width width"]:
        exact = rows[part].astype(np.float64)
        return np.asarray(exact.T @ exact)

    with blas_workers() as spread:
        gram = functools.reduce(operator.iadd, spread(products, chunks(len(rows))))
        directions = np.linalg.eigh(gram)[1][:, ::-1]
        return np.concatenate(list(spread(lambda part: rows[part] @ directions, chunks(len(rows)))))


def partition_isotropy(projections: Float[np.ndarray, "token axis"]) -> LogIsotropy:
    """Compute log I over + and - all axes of these projections."""
    mean_square = float(np.einsum("nd,nd->", projections, projections)) / len(projections)
    scales = (1.0, float(np.sqrt(projections.shape[1] / mean_square)))

    def log_sums(part: slice) -> Float[np.ndarray, "scale sign axis"]:
        return np.stack([[_log_sum_exp(sign * scale * projections[part]) for sign in (1, -1)] for scale in scales])

    with blas_workers() as spread:
        logs = np.logaddexp.reduce(list(spread(log_sums, chunks(len(projections)))))  # [scale, sign, axis]
    return LogIsotropy(*(float(log_values.min() - log_values.max()) for log_values in logs))


def _log_sum_exp(exponents: np.ndarray) -> np.ndarray:
    largest = exponents.max(axis=0)
    exponents -= largest
    logs: np.ndarray = largest + np.log(np.exp(exponents, out=exponents).sum(axis=0))
    return logs

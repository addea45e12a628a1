"""Partition isotropy in log space."""

from __future__ import annotations

import functools
import operator
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from tasks.geometry.crew import crew
from tasks.geometry.lloyd import chunks


class LogIsotropy(NamedTuple):
    """log I of the states as given, and of the states scaled to root mean square norm √d."""

    given: float
    scaled: float


def log_isotropy(states: Float[np.ndarray, "token width"]) -> LogIsotropy:
    """log I = min log Z(c) - max log Z(c), with Z(c) = Σ_i exp(ψ_i · c), at most 0.

    Source: isotropy paper, eq. 5; Mu & Viswanath 2018. c runs over + and - every unit eigenvector of ΨᵀΨ (the
    originals take one arbitrary sign: not reproducible; this is never larger). A direction without rows has Z = N.
    I is not scale-free, so only `scaled`, of ψ √d / rms‖ψ‖, compares models. Raises ValueError where every row is 0.
    """
    rows = np.asarray(states)
    if not rows.any():
        raise ValueError("states: every row is zero; expected at least one that is not")
    with crew() as spread:
        gram = functools.reduce(operator.iadd, spread(functools.partial(_gram, rows), chunks(len(rows))))
        mean_square = np.trace(gram) / len(rows)
        _, directions = np.linalg.eigh(gram)
        scales = (1.0, float(np.sqrt(rows.shape[1] / mean_square)))
        parts = list(spread(lambda part: _log_sums(rows[part] @ directions, scales), chunks(len(rows))))
    logs = np.logaddexp.reduce(np.stack(parts))  # [scale, sign, width]
    return LogIsotropy(*(float(one.min() - one.max()) for one in logs))


def _gram(rows: np.ndarray, part: slice) -> np.ndarray:
    exact = rows[part].astype(np.float64)
    gram: np.ndarray = exact.T @ exact
    return gram


def _log_sums(projections: np.ndarray, scales: tuple[float, ...]) -> Float[np.ndarray, "scale sign width"]:
    """log Σ_i exp(± s p_ij) over rows, for every scale s, both signs and every column j."""
    return np.stack([[_log_sum_exp(sign * scale * projections) for sign in (1, -1)] for scale in scales])


def _log_sum_exp(exponents: np.ndarray) -> np.ndarray:
    largest = exponents.max(axis=0)
    exponents -= largest
    logs: np.ndarray = largest + np.log(np.exp(exponents, out=exponents).sum(axis=0))
    return logs

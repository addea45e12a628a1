"""Partition isotropy in log space."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float


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
    rows = np.asarray(states, dtype=np.float64)
    width = rows.shape[1]
    gram = rows.T @ rows
    mean_square = np.trace(gram) / max(len(rows), 1)
    if not mean_square > 0:
        raise ValueError("states: every row is zero; expected at least one that is not")
    _, directions = np.linalg.eigh(gram)
    projections = rows @ directions
    return LogIsotropy(_log_ratio(projections), _log_ratio(projections * np.sqrt(width / mean_square)))


def _log_ratio(projections: np.ndarray) -> float:
    """min - max of log Σ_i exp(±p_ij) over columns j and both signs."""
    logs = np.concatenate([_log_sum_exp(projections), _log_sum_exp(-projections)])
    return float(logs.min() - logs.max())


def _log_sum_exp(exponents: np.ndarray) -> np.ndarray:
    largest = exponents.max(axis=0)
    logs: np.ndarray = largest + np.log(np.exp(exponents - largest).sum(axis=0))
    return logs

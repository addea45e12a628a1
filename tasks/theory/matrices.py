"""Matrices with what a proof asks of them: orthogonal ones, given singular values, bounded norms."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

SPECTRA = ("exponential", "power", "flat", "step", "log-uniform")
SMALLEST = 1e-6  # of a spectrum: what is below is rounding after a few products
EPS = float(np.finfo(np.float64).eps)


class Spectrum(NamedTuple):
    """Singular values, descending, the first 1, all positive; and how they were drawn."""

    values: np.ndarray
    kind: str


def orthonormal(rng: np.random.Generator, rows: int, columns: int) -> Float[np.ndarray, "row column"]:
    """Orthonormal columns, uniform (Haar): Q of a Gaussian matrix, with R's diagonal made positive.

    Source: Mezzadri 2007. Raises ValueError for more columns than rows.
    """
    if columns > rows:
        raise ValueError(f"columns: got {columns}, expected at most the {rows} rows")
    q, r = np.linalg.qr(rng.standard_normal((rows, columns)))
    signed: np.ndarray = q * np.where(np.diag(r) < 0, -1.0, 1.0)
    return signed


def with_singular_values(
    rng: np.random.Generator, values: Float[np.ndarray, " rank"], rows: int, columns: int
) -> Float[np.ndarray, "row column"]:
    """U diag(values) Vᵀ with random U and V, as Appendix J.1 makes its inputs."""
    matrix: np.ndarray = (orthonormal(rng, rows, len(values)) * values) @ orthonormal(rng, columns, len(values)).T
    return matrix


def bounded(rng: np.random.Generator, rows: int, columns: int, norm: float) -> Float[np.ndarray, "row column"]:
    """A Gaussian matrix scaled to this spectral norm."""
    matrix = rng.standard_normal((rows, columns))
    scaled: np.ndarray = matrix * (norm / np.linalg.norm(matrix, 2))
    return scaled


def decaying(count: int, decay: float) -> Float[np.ndarray, " rank"]:
    """From e^0 to e^-decay, evenly on a logarithmic scale (Appendix J.1: e^0 to e^-5)."""
    return np.exp(-decay * np.arange(count) / max(count - 1, 1))


def random_spectrum(rng: np.random.Generator, count: int) -> Spectrum:
    """Exponential, power-law, flat, one step, or log-uniform; the first is 1, none below SMALLEST."""
    kind = SPECTRA[rng.integers(len(SPECTRA))]
    at = np.arange(count)
    if kind == "exponential":
        values = np.exp(-rng.uniform(0.05, 3.0) * at)
    elif kind == "power":
        values = (1.0 + at) ** -rng.uniform(0.3, 3.0)
    elif kind == "flat":
        values = np.ones(count)
    elif kind == "step":
        values = np.where(at < rng.integers(1, count + 1), 1.0, 10.0 ** -rng.uniform(1, 6))
    else:
        values = np.sort(10.0 ** -rng.uniform(0, 6, count))[::-1]
        values = values / values[0]
    return Spectrum(np.maximum(values, SMALLEST), kind)


def rounding(matrix_norm: float, rows: int, columns: int) -> float:
    """What float64 leaves unsure of singular values of a matrix of this norm and shape: max(rows, columns) eps norm."""
    return 4 * max(rows, columns) * EPS * matrix_norm

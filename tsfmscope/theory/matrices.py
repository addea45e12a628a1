"""Random matrices with properties that proofs require: orthonormal, given singular values, bounded norm."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

SPECTRA = ("exponential", "power", "flat", "step", "log-uniform")
# Smallest value of a spectrum: smaller ones become rounding after a few products.
SMALLEST = 1e-6
EPS = float(np.finfo(np.float64).eps)


class Spectrum(NamedTuple):
    """Singular values (positive, descending, the first 1), and the kind of distribution they come from."""

    values: np.ndarray
    kind: str


def orthonormal(rng: np.random.Generator, rows: int, columns: int) -> Float[np.ndarray, "row column"]:
    """Draw orthonormal columns, uniform (Haar): Q of a Gaussian matrix, with R's diagonal made positive.

    Source: Mezzadri 2007. Raises ValueError for more columns than rows.
    """
    if columns > rows:
        raise ValueError(f"columns: got {columns}, expected at most the {rows} rows")
    q, r = np.linalg.qr(rng.standard_normal((rows, columns)))
    return np.asarray(q * np.where(np.diag(r) < 0, -1.0, 1.0))


def with_singular_values(
    rng: np.random.Generator, values: Float[np.ndarray, " rank"], rows: int, columns: int
) -> Float[np.ndarray, "row column"]:
    """Return U diag(values) Vᵀ with random U and V, as Appendix J.1 constructs its inputs."""
    return np.asarray((orthonormal(rng, rows, len(values)) * values) @ orthonormal(rng, columns, len(values)).T)


def gaussian_with_norm(
    rng: np.random.Generator, rows: int, columns: int, norm: float
) -> Float[np.ndarray, "row column"]:
    """Draw a Gaussian matrix and scale it to this spectral norm."""
    matrix = rng.standard_normal((rows, columns))
    return np.asarray(matrix * (norm / np.linalg.norm(matrix, 2)))


def exponential_values(count: int, decay: float) -> Float[np.ndarray, " rank"]:
    """Return values from e^0 to e^-decay, evenly spaced on a logarithmic scale (Appendix J.1: e^0 to e^-5)."""
    return np.exp(-decay * np.arange(count) / max(count - 1, 1))


def random_spectrum(rng: np.random.Generator, count: int) -> Spectrum:
    """Draw a spectrum: exponential, power-law, flat, one step, or log-uniform.

    The first value is 1, and none is below SMALLEST.
    """
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


def rounding_error(matrix_norm: float, rows: int, columns: int) -> float:
    """Return the float64 uncertainty of the singular values of a matrix: 4 max(rows, columns) eps norm."""
    return 4 * max(rows, columns) * EPS * matrix_norm

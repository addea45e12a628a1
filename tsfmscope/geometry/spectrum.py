"""Principal axes of states, and what follows from them: effective dimension, IsoScore and partition isotropy."""

from __future__ import annotations

import functools
import operator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from tsfmscope.geometry.parallel import blas_workers, chunks

States = Float[np.ndarray, "token width"]
Points = Float[np.ndarray, "token axis"]
Values = Float[np.ndarray, " width"]


@dataclass(frozen=True, eq=False)
class Spectrum:
    """Eigenvalues of the centred sample covariance (descending), their directions as columns, and the mean.

    If `is_wide(*states.shape)`, there is one direction per row; the other eigenvalues are 0.
    """

    mean: Values
    eigenvalues: Values
    directions: Float[np.ndarray, "width axis"]


def is_wide(tokens: int, width: int) -> bool:
    """Return whether a thin SVD of so many rows is faster than the eigenvectors of their covariance.

    Measured for float64 on one core of an AMD EPYC: 64 rows of width 1024 take 5 ms instead of 250. Above half as many
    rows as dimensions, the eigenvectors are faster.
    """
    return 2 * tokens <= width


def axes_of_few_rows(rows: States) -> tuple[np.ndarray, np.ndarray]:
    """Return eigenvalues [d] of ΨᵀΨ, descending, and eigenvectors [d, n] as columns, from a thin SVD.

    rows: Ψ [N, d], with n = min(N, d). Directions beyond the n returned ones have the eigenvalue 0. The result does
    not depend on the number of threads. Raises LinAlgError for NaN and infinity.
    """
    with blas_workers():
        _, singular, right = np.linalg.svd(rows, full_matrices=False)
    # LAPACK returns NaN for some infinite rows.
    if not np.isfinite(singular).all():
        raise np.linalg.LinAlgError("rows contain NaN or infinity")
    eigenvalues = np.zeros(rows.shape[1])
    eigenvalues[: len(singular)] = np.square(singular)
    return eigenvalues, right.T


def covariance_spectrum(states: States) -> Spectrum:
    """Compute the eigenvalues λ of the covariance Σ (ψ_i - μ)(ψ_i - μ)ᵀ / (N - 1), in float64.

    Source: Shelim et al. 2025, section 4.1. Eigenvalues are at least 0. One below 1e-16 of the largest is
    rounding: this accuracy is enough for a share of variance, not for a numerical rank. Constant rows give
    zeros. NaN and infinity are not accepted (the decomposition raises LinAlgError). Raises ValueError
    for fewer than two rows.
    """
    if len(states) < 2:
        raise ValueError(f"states: got {len(states)} rows, expected at least 2 for a covariance")
    states = np.asarray(states)
    mean = states.mean(axis=0, dtype=np.float64)
    if is_wide(*states.shape):
        eigenvalues, directions = axes_of_few_rows(states - mean)
        return Spectrum(mean, eigenvalues / (len(states) - 1), directions)

    def sum_products(part: slice) -> np.ndarray:
        centred = states[part] - mean
        return np.asarray(centred.T @ centred)

    with blas_workers() as spread:
        covariance = functools.reduce(operator.iadd, spread(sum_products, chunks(len(states)))) / (len(states) - 1)
        values, vectors = np.linalg.eigh(covariance)
    return Spectrum(mean, np.maximum(values[::-1], 0.0), vectors[:, ::-1])


def effective_dimension(eigenvalues: Values, share: float = 0.8) -> int:
    """Return the smallest m whose m largest eigenvalues hold at least this share of their sum.

        d(s) = min {m : Σ_{i<m} λ_i ≥ s Σ λ_i}

    Source: Shelim et al. 2025, section 4.1 (default s = 0.8). A share of 1, or within rounding of it, counts
    eigenvalues that are rounding. Raises ValueError for a share outside (0, 1], and for eigenvalues that are empty,
    negative or sum to 0 (constant states).
    """
    if not 0 < share <= 1:
        raise ValueError(f"share: got {share}, expected a value in (0, 1]")
    values = np.sort(np.asarray(eigenvalues, dtype=np.float64))[::-1]
    if not len(values) or not values[0] > 0 or values[-1] < 0:
        raise ValueError("eigenvalues: expected values of at least 0 with a positive one; constant states have none")
    cumulated = np.cumsum(values)
    return int(np.argmax(cumulated >= share * cumulated[-1])) + 1


def principal_coordinates(states: States, spectrum: Spectrum) -> Points:
    """Project centred rows onto the directions with variance, and divide by their root mean square norm.

    Distances are those of the states up to one factor. Directions with less than 1e-14 of the leading
    eigenvalue are rounding and are dropped. Constant rows give no axis.
    """
    leading = spectrum.eigenvalues[0]
    axes = int(np.count_nonzero(spectrum.eigenvalues > 1e-14 * leading))
    directions = spectrum.directions[:, :axes] / np.sqrt(spectrum.eigenvalues.sum() or 1.0)
    states = np.asarray(states)
    points = np.empty((len(states), axes))

    def project_chunk(part: slice) -> None:
        np.matmul(states[part] - spectrum.mean, directions, out=points[part])

    with blas_workers() as spread:
        for _ in spread(project_chunk, chunks(len(states))):
            pass
    return points


# Source: Rudman & Eickhoff 2024, default of the released run_model.py.
SHRINKAGE = 0.2


def isoscore(eigenvalues: Values) -> float | None:
    """Return IsoScore in [0, 1]: 0 if one direction holds all variance, 1 if all directions hold the same.

    With Λ the eigenvalues and d their number:

        Λ̂ = √d Λ/‖Λ‖,  δ = ‖Λ̂ - 1‖ / √(2 (d - √d)),  score = ((d - δ² (d - √d))² - d) / (d (d - 1))

    This equals (r - 1)/(d - 1) with the participation ratio r = (Σ λ)²/Σ λ². The second form is computed,
    because the printed steps lose digits near 0. Source: Rudman et al. 2022, algorithm 1, and the IsoScore
    package. The input is the spectrum of the centred covariance; having fewer rows than d directions lowers
    the score.

    None for a single direction and for constant states. Raises ValueError for an eigenvalue that is negative
    or not finite.
    """
    values = _check_eigenvalues(eigenvalues)
    if len(values) < 2 or not values.any():
        return None
    # Scaled values, so that no square overflows or underflows.
    shares = values / values.max()
    ratio = shares.sum() ** 2 / np.square(shares).sum()
    return float(min(1.0, max(0.0, (ratio - 1) / (len(values) - 1))))


def isoscore_star(eigenvalues: Values, *, shrinkage: float = SHRINKAGE, target: float = 1.0) -> float | None:
    """Return IsoScore of the shrunk covariance (1 - z) Σ + z t I.

    A small number of rows lowers it less than IsoScore. shrinkage: z; 0 gives IsoScore. target: t. Source:
    Rudman & Eickhoff 2024, section 3, and isoscore_star of the released regularizers.py with C0 = I, which
    its authors recommend where no larger sample exists (t = 1). The identity has a scale, so with a fixed
    target the score depends on the scale of the states; a target equal to the mean eigenvalue removes that.

    A single direction gives None. Constant states give 1 where z t is above 0. Raises ValueError for a
    shrinkage outside [0, 1], and for eigenvalues as `isoscore` does.
    """
    if not 0 <= shrinkage <= 1:
        raise ValueError(f"shrinkage: got {shrinkage}, expected a share in [0, 1]")
    return isoscore((1 - shrinkage) * _check_eigenvalues(eigenvalues) + shrinkage * target)


def _check_eigenvalues(eigenvalues: np.ndarray) -> np.ndarray:
    values = np.asarray(eigenvalues, dtype=np.float64)
    if not np.isfinite(values).all() or (values < 0).any():
        raise ValueError("eigenvalues: expected finite values of at least 0; check the states")
    return values


class LogIsotropy(NamedTuple):
    """log I of the states as given, and of the states scaled to root mean square norm √d."""

    unscaled: float
    scaled: float


def log_isotropy(states: States) -> LogIsotropy:
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


def uncentred_projections(states: States) -> States:
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


def partition_isotropy(projections: Points) -> LogIsotropy:
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
    return np.asarray(largest + np.log(np.exp(exponents, out=exponents).sum(axis=0)))

"""KernelSynth: series drawn from random Gaussian processes (isotropy.md, Algorithm 1; Ansari et al. 2024).

A kernel is a scikit-learn kernel object, and scikit-learn's classes are its definition. Multiplied out, every
composition of the bank is a sum of products of leaves, and each product is one of three things on the grid:

- with a White leaf: a diagonal;
- of DotProduct and Constant leaves only: an exact factor of few columns, drawn without a Cholesky, so that
  DotProduct(0) is a line through 0 to the last bit;
- else the Hadamard product of a Toeplitz matrix (ExpSineSquared, RBF and RationalQuadratic are stationary) and such a
  factor's Gram matrix. These add up to one covariance, drawn by a jittered Cholesky.

The sum of independent draws of the three has the composition's law.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from jaxtyping import Float32, Float64

from tasks.errors import DataError
from tasks.series.kernels import (
    ARGUMENT,
    LENGTH,
    MAX_KERNELS,
    kernel_bank,
    kernel_expression,
    leaf_classes,
    parse_kernel,
    sample_kernel,
)
from tasks.series.types import Series

if TYPE_CHECKING:
    from sklearn.gaussian_process.kernels import Kernel

# Jitter over the largest entry, tried in turn; round-off alone is about L * 2^-53 = 1e-13. The last adds 1e-7, under
# the error budget of 1e-6; a matrix that still fails goes to eigh with negative eigenvalues set to 0.
_JITTERS = (1e-12, 1e-10, 1e-8, 1e-7)

__all__ = [
    "SYNTHETIC",
    "Drawn",
    "SyntheticSet",
    "covariance",
    "draw",
    "draw_batch",
    "draw_index",
    "draw_many",
    "kernel_bank",
    "kernel_expression",
    "kernelsynth_series",
    "parse_kernel",
    "sample_kernel",
    "series_seed",
    "synthetic_set",
]


class Drawn(NamedTuple):
    """One synthetic series: the kernel's scikit-learn expression, the seed that draws it again alone, its values."""

    expression: str
    seed: int
    values: Float32[np.ndarray, " step"]


@dataclass(frozen=True)
class SyntheticSet:
    """One of the ten named sets: a kernel of one leaf. A periodicity is in grid lengths over L, others as they are."""

    domain: str
    leaf: str
    argument: float

    def kernel(self, length: int = LENGTH) -> Kernel:
        """The scikit-learn kernel on a grid of `length` steps."""
        value = self.argument / length if self.leaf == "ExpSineSquared" else self.argument
        return leaf_classes()[self.leaf](**{ARGUMENT[self.leaf]: float(value)})

    def expression(self, length: int = LENGTH) -> str:
        """The kernel as a scikit-learn expression."""
        return kernel_expression(self.kernel(length))


# isotropy.md, Table 3. Periods 26 and 96 are our reading of "0.5W" and "0.25H": half a year of weeks, a day of
# quarter-hours.
SYNTHETIC: dict[str, SyntheticSet] = {
    "linear-1": SyntheticSet("linear", "DotProduct", 0.0),
    "linear-2": SyntheticSet("linear", "DotProduct", 1.0),
    "seasonality-1": SyntheticSet("seasonality", "ExpSineSquared", 26),
    "seasonality-2": SyntheticSet("seasonality", "ExpSineSquared", 96),
    "trend-1": SyntheticSet("trend", "RationalQuadratic", 1.0),
    "trend-2": SyntheticSet("trend", "RationalQuadratic", 10.0),
    "non-linear-1": SyntheticSet("non-linear", "RBF", 0.1),
    "non-linear-2": SyntheticSet("non-linear", "RBF", 1.0),
    "stochastic-1": SyntheticSet("stochastic", "WhiteKernel", 0.1),
    "stochastic-2": SyntheticSet("stochastic", "WhiteKernel", 1.0),
}


def covariance(kernel: Kernel, length: int = LENGTH) -> Float64[np.ndarray, "step step"]:
    """The kernel's covariance [L, L] on linspace(0, 1, L), as `draw` samples it but for the Cholesky's jitter."""
    parts = _parts(kernel, length)
    dense = 0.0 if parts.dense is None else parts.dense
    return np.asarray(parts.factor @ parts.factor.T + np.diag(parts.diagonal) + dense)


def draw(kernel: Kernel, seed: int, length: int = LENGTH) -> Float32[np.ndarray, " step"]:
    """One series x ~ GP(0, kernel) on linspace(0, 1, length), [L]. The same kernel and seed give the same series."""
    return np.asarray(draw_batch(kernel, [seed], length)[0])


def draw_batch(kernel: Kernel, seeds: Sequence[int], length: int = LENGTH) -> Float32[np.ndarray, "series step"]:
    """One series a seed from one kernel, [N, L], with one factorisation; each is what `draw` gives for its seed.

    Raises:
        DataError: the values do not fit float32 (no composition of the bank does that).
    """
    parts = _parts(kernel, length)
    rank = parts.factor.shape[1]
    has_diagonal = bool(parts.diagonal.any())
    width = rank + length * (has_diagonal + (parts.dense is not None))
    noise = np.stack([np.random.default_rng(seed).standard_normal(width) for seed in seeds])  # [N, width]
    values = noise[:, :rank] @ parts.factor.T  # [N, L]
    if has_diagonal:
        values += noise[:, rank : rank + length] * np.sqrt(parts.diagonal)
    if parts.dense is not None:
        values += _correlate(parts.dense, noise[:, -length:])
    limit = float(np.finfo(np.float32).max)
    if not np.all(np.abs(values) <= limit):
        raise DataError(f"kernel {kernel_expression(kernel)}: the draw does not fit float32 (limit {limit:.3g})")
    return np.asarray(values, dtype=np.float32)


def series_seed(seed: int, index: int, dataset: str = "") -> int:
    """The 63-bit seed of series `index` under the run's `seed`; sets of other names have other series."""
    entropy = (seed, index, *dataset.encode())
    return int(np.random.SeedSequence(entropy).generate_state(1, np.uint64)[0] >> np.uint64(1))


def draw_index(index: int, seed: int, length: int = LENGTH, max_kernels: int = MAX_KERNELS) -> Drawn:
    """Series `index` of the stream that `seed` names: its own random kernel, and a draw from that."""
    own = series_seed(seed, index)
    kernel = sample_kernel(np.random.default_rng((own, 1)), max_kernels, length)
    return Drawn(kernel_expression(kernel), own, draw(kernel, own, length))


def draw_many(count: int, seed: int, length: int = LENGTH, max_kernels: int = MAX_KERNELS) -> list[Drawn]:
    """The first `count` series of the stream that `seed` names, each with its expression and its own seed."""
    return [draw_index(index, seed, length, max_kernels) for index in range(count)]


def kernelsynth_series(count: int, seed: int, length: int = LENGTH, max_kernels: int = MAX_KERNELS) -> list[Series]:
    """`draw_many` as Series of the data set "kernelsynth"."""
    drawn = draw_many(count, seed, length, max_kernels)
    return [_series("kernelsynth", "synthetic", index, one) for index, one in enumerate(drawn)]


def synthetic_set(
    name: str, kernel: Kernel, *, count: int, seed: int, length: int = LENGTH, domain: str = ""
) -> list[Series]:
    """`count` series from one kernel, such as `SYNTHETIC[name].kernel(length)`, with one factorisation."""
    if count < 1:
        return []
    expression = kernel_expression(kernel)
    seeds = [series_seed(seed, index, name) for index in range(count)]
    rows = draw_batch(kernel, seeds, length)
    drawn = (Drawn(expression, own, row) for own, row in zip(seeds, rows, strict=True))
    return [_series(name, domain, index, one) for index, one in enumerate(drawn)]


def _series(dataset: str, domain: str, index: int, drawn: Drawn) -> Series:
    return Series(
        dataset, f"{dataset}-{index:06d}", drawn.values, domain, kernel=drawn.expression, seed=drawn.seed,
        provenance="KernelSynth, bank of the Chronos release",
    )  # fmt: skip


class _Parts(NamedTuple):
    factor: Float64[np.ndarray, "step rank"]
    diagonal: Float64[np.ndarray, " step"]
    dense: Float64[np.ndarray, "step step"] | None


def _parts(kernel: Kernel, length: int) -> _Parts:
    """The covariance taken apart: factor @ factor.T + diag(diagonal) + dense."""
    if length < 2:
        raise ValueError(f"length: expected at least 2, got {length}")
    grid = np.linspace(0.0, 1.0, length)
    factors, diagonal, dense = [np.empty((length, 0))], np.zeros(length), None
    for leaves in _products(kernel):
        factor = reduce(_times, (_factor(leaf, grid) for leaf in leaves if _is_low_rank(leaf)), np.ones((length, 1)))
        stationary = [leaf for leaf in leaves if not _is_low_rank(leaf)]
        whites = [leaf for leaf in stationary if type(leaf).__name__ == "WhiteKernel"]
        if whites:  # at lag 0 the other stationary leaves are 1
            diagonal += math.prod(w.noise_level for w in whites) * np.square(factor).sum(axis=1)
        elif not stationary:
            factors.append(factor)
        else:
            matrix = _toeplitz(math.prod(leaf(grid[:, None], grid[:1, None])[:, 0] for leaf in stationary))
            matrix = matrix if factor.shape[1] == 1 and (factor == 1).all() else matrix * (factor @ factor.T)
            dense = np.array(matrix) if dense is None else np.add(dense, matrix, out=dense)
    return _Parts(np.concatenate(factors, axis=1), diagonal, dense)


def _products(kernel: Kernel) -> list[tuple[Kernel, ...]]:
    """The kernel multiplied out: a sum of products of leaves."""
    from sklearn.gaussian_process.kernels import Product, Sum

    if isinstance(kernel, Sum):
        return _products(kernel.k1) + _products(kernel.k2)
    if isinstance(kernel, Product):
        return [left + right for left in _products(kernel.k1) for right in _products(kernel.k2)]
    return [(kernel,)]


def _is_low_rank(leaf: Kernel) -> bool:
    return type(leaf).__name__ in ("DotProduct", "ConstantKernel")


def _factor(leaf: Kernel, grid: np.ndarray) -> np.ndarray:
    if type(leaf).__name__ == "ConstantKernel":
        return np.full((len(grid), 1), math.sqrt(leaf.constant_value))
    columns = [grid] if leaf.sigma_0 == 0 else [grid, np.full_like(grid, leaf.sigma_0)]
    return np.stack(columns, axis=1)


def _times(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Row-wise Kronecker product: the factor of a Hadamard product of Gram matrices."""
    return np.asarray((left[:, :, None] * right[:, None, :]).reshape(len(left), -1))


def _toeplitz(column: np.ndarray) -> np.ndarray:
    """The symmetric Toeplitz matrix of a first column, as a read-only view."""
    line = np.concatenate([column[:0:-1], column])
    return np.lib.stride_tricks.sliding_window_view(line, len(column))[::-1]


def _correlate(matrix: np.ndarray, noise: np.ndarray) -> np.ndarray:
    """White noise [N, L] to rows of covariance `matrix` [L, L], which is overwritten on the diagonal."""
    from scipy.linalg.blas import dtrmm
    from scipy.linalg.lapack import dpotrf

    diagonal = np.diagonal(matrix).copy()
    for jitter in _JITTERS:
        np.fill_diagonal(matrix, diagonal + jitter * diagonal.max())
        # LAPACK itself: scipy.linalg.cholesky takes half as long again, to copy and to clear the other triangle.
        root, failed = dpotrf(matrix.T, lower=1, clean=0)
        if not failed:
            correlated: np.ndarray = dtrmm(1.0, root, np.asfortranarray(noise.T), lower=1).T
            return correlated
    np.fill_diagonal(matrix, diagonal)
    values, vectors = np.linalg.eigh(matrix)
    return np.asarray((noise * np.sqrt(np.maximum(values, 0.0))) @ vectors.T)

"""KernelSynth: series from random Gaussian processes (Shelim et al. 2025, Algorithm 1; Ansari et al. 2024).

A kernel is a scikit-learn kernel object, and scikit-learn's classes are its definition. `synthesis` draws
from it without forming the matrix; the covariance of its samples differs from the kernel's matrix by less
than 1e-6 of the largest entry. Every composition of the bank can be drawn, so none is left out or replaced by
another.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from jaxtyping import Float32, Float64

from tsfmscope.errors import DataError
from tsfmscope.series.synthetic.kernels import (
    LENGTH,
    MAX_KERNELS,
    Leaf,
    compositions,
    kernel_expression,
    kernel_season,
    products_of,
    series_seeds,
)
from tsfmscope.series.types import Series

if TYPE_CHECKING:
    from sklearn.gaussian_process.kernels import Kernel

_LIMIT = float(np.finfo(np.float32).max)


class Drawn(NamedTuple):
    """One synthetic series: the kernel's scikit-learn expression, its seed and its values.

    The seed reproduces the series without the others.
    """

    expression: str
    seed: int
    values: Float32[np.ndarray, " step"]


def covariance(kernel: Kernel, length: int = LENGTH) -> Float64[np.ndarray, "step step"]:
    """Return the covariance [L, L] of what `draw` samples, for comparison with the kernel's own matrix.

    Takes seconds where L is large.
    """
    from tsfmscope.series.synthetic.synthesis import sampled_covariance

    return sampled_covariance(products_of(kernel), length)


def draw(kernel: Kernel, seed: int, length: int = LENGTH) -> Float32[np.ndarray, " step"]:
    """Draw one series x ~ GP(0, kernel) on linspace(0, 1, length), [L].

    The same kernel and seed give the same series.
    """
    return np.asarray(draw_batch(kernel, [seed], length)[0])


def draw_batch(kernel: Kernel, seeds: Sequence[int], length: int = LENGTH) -> Float32[np.ndarray, "series step"]:
    """Draw one series per seed from one kernel, [N, L]; each equals `draw` with its seed.

    Raises:
        DataError: the values do not fit float32 (no composition of the bank does that), or the kernel is so
            rough that `spectrum` refuses it.
    """
    return _float32([products_of(kernel)] * len(seeds), [kernel_expression(kernel)] * len(seeds), seeds, length)


def draw_at(indices: Sequence[int], seed: int, length: int = LENGTH, max_kernels: int = MAX_KERNELS) -> list[Drawn]:
    """Draw the series with these indices in the stream of `seed`, each from its own random kernel."""
    seeds = series_seeds(seed, indices)
    kernels = compositions(seeds, max_kernels, length)
    expressions = [composition.expression for composition in kernels]
    products = [list(composition.expand_products()) for composition in kernels]
    return list(map(Drawn, expressions, seeds, _float32(products, expressions, seeds, length)))


def draw_many(count: int, seed: int, length: int = LENGTH, max_kernels: int = MAX_KERNELS) -> list[Drawn]:
    """Draw the first `count` series of the stream of `seed`, each with its expression and its own seed."""
    return draw_at(range(count), seed, length, max_kernels)


def kernelsynth_series(count: int, seed: int, length: int = LENGTH, max_kernels: int = MAX_KERNELS) -> list[Series]:
    """Return `draw_many` as Series of the data set "kernelsynth"."""
    draws = draw_many(count, seed, length, max_kernels)
    return [as_series("kernelsynth", "synthetic", index, draw) for index, draw in enumerate(draws)]


def synthetic_set(
    name: str, kernel: Kernel, *, count: int, seed: int, length: int = LENGTH, domain: str = ""
) -> list[Series]:
    """Draw `count` series from one kernel, such as that of an entry of catalog.yaml; their season is its period."""
    expression, season = kernel_expression(kernel), kernel_season(kernel, length)
    seeds = series_seeds(seed, range(count), name)
    draws = map(Drawn, [expression] * count, seeds, draw_batch(kernel, seeds, length))
    return [replace(as_series(name, domain, index, draw), season=season) for index, draw in enumerate(draws)]


def as_series(dataset: str, domain: str, index: int, draw: Drawn) -> Series:
    """Return the draw as series `index` of a data set."""
    return Series(
        dataset, f"{dataset}-{index:06d}", draw.values, domain, kernel=draw.expression, seed=draw.seed,
        provenance="KernelSynth, bank of the Chronos release",
    )  # fmt: skip


def _float32(
    products: Sequence[Sequence[tuple[Leaf, ...]]], expressions: Sequence[str], seeds: Sequence[int], length: int
) -> Float32[np.ndarray, "series step"]:
    # Imported only here, because the import compiles or loads machine code.
    from tsfmscope.series.synthetic.synthesis import synthesise

    values = synthesise(products, seeds, length)
    # Written so that NaN fails the comparison as well.
    if len(lost := np.flatnonzero(~(np.abs(values) <= _LIMIT).all(axis=1))):
        raise DataError(
            f"kernel {expressions[lost[0]]}: the draw does not fit float32 (limit {_LIMIT:.3g}); "
            f"{len(lost)} of {len(values)} series do not"
        )
    return values.astype(np.float32)

"""TSMixup (Ansari et al. 2024): convex combinations of mean-scaled windows of several series."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from jaxtyping import Float32, Float64

ALPHA = 1.5  # concentration of the Dirichlet weights (Ansari et al. 2024)
MOST_SERIES = 3  # K (Ansari et al. 2024)
LENGTHS = (128, 2048)  # steps of a mixed series, ends included (Ansari et al. 2024)


def tsmixup(
    series: Sequence[np.ndarray],
    rng: np.random.Generator,
    *,
    most_series: int = MOST_SERIES,
    alpha: float = ALPHA,
    lengths: tuple[int, int] = LENGTHS,
) -> Iterator[Float32[np.ndarray, " step"]]:
    """Mixed series without end: k ~ U{1..most_series} mean-scaled windows of one length, Dirichlet(alpha) weights.

    The length is uniform over `lengths`, cut at the longest series; the k series are then drawn uniformly, with
    replacement, from those that are long enough. A step that is missing (NaN) in any window is missing in the mixture.
    The arrays are indexed as they are needed, so `series` may be lazy.

    Raises:
        ValueError: no series has `lengths[0]` steps, or an argument is out of range. Raised at the call.
    """
    if most_series < 1 or alpha <= 0 or not 1 <= lengths[0] <= lengths[1]:
        got = f"got {most_series}, {alpha}, {lengths}"
        raise ValueError(f"tsmixup: expected most_series >= 1, alpha > 0, 1 <= shortest <= longest, {got}")
    sizes = np.array([len(one) for one in series])
    longest = int(sizes.max(initial=0))
    if longest < lengths[0]:
        raise ValueError(f"tsmixup: expected a series of at least {lengths[0]} steps, got at most {longest}")
    return _stream(series, sizes, rng, (most_series, alpha, lengths[0], min(lengths[1], longest)))


def mean_scaled(values: np.ndarray) -> Float64[np.ndarray, " step"]:
    """The values over their mean absolute value (NaN left out); unscaled where that is 0 or nothing is observed."""
    values = np.asarray(values, dtype=np.float64)
    observed = np.abs(values[~np.isnan(values)])
    scale = observed.mean() if observed.size else 0.0
    return values / scale if scale > 0 else values


def _stream(
    series: Sequence[np.ndarray], sizes: np.ndarray, rng: np.random.Generator, law: tuple[int, float, int, int]
) -> Iterator[Float32[np.ndarray, " step"]]:
    most_series, alpha, shortest, longest = law
    by_size = np.argsort(sizes, kind="stable")
    ordered = sizes[by_size]
    while True:
        count = int(rng.integers(1, most_series + 1))
        length = int(rng.integers(shortest, longest + 1))
        first = int(np.searchsorted(ordered, length))
        picked = by_size[rng.integers(first, len(by_size), size=count)]
        weights = rng.dirichlet(np.full(count, alpha))
        mixed = np.zeros(length)
        for index, weight in zip(picked, weights, strict=True):
            start = int(rng.integers(sizes[index] - length + 1))
            mixed += weight * mean_scaled(series[int(index)][start : start + length])
        yield mixed.astype(np.float32)

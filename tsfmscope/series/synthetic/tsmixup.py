"""TSMixup (Ansari et al. 2024): convex combinations of mean-scaled windows of several series."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float32, Float64, Int64

# Concentration of the Dirichlet weights (Ansari et al. 2024).
ALPHA = 1.5
# K, the largest number of mixed series (Ansari et al. 2024).
MOST_SERIES = 3
# Shortest and longest mixed series in steps, both included (Ansari et al. 2024).
LENGTHS = (128, 2048)


class Mixture(NamedTuple):
    """Recipe of one mixture: windows of `length` steps of k series, with their starts and weights.

    picked: indices of the k series.
    """

    length: int
    picked: Int64[np.ndarray, " part"]
    starts: list[int]
    weights: Float64[np.ndarray, " part"]

    def of(self, series: Sequence[np.ndarray]) -> Float32[np.ndarray, " step"]:
        """Mix the picked series, given in the order of `picked`.

        A step missing in any window is missing in the mixture.
        """
        mixed = np.zeros(self.length)
        for values, start, weight in zip(series, self.starts, self.weights, strict=True):
            mixed += weight * scale_by_mean(values[start : start + self.length])
        return mixed.astype(np.float32)


class MixtureLaw:
    """Distribution of mixtures: k ~ U{1..most_series} windows of one length with Dirichlet(alpha) weights.

    The length is uniform over `lengths`, cut at the longest series. The k series are drawn uniformly, with
    replacement, from the series that are long enough.

    sizes: steps of every series.

    Raises:
        ValueError: no series has `lengths[0]` steps, or an argument is out of range.
    """

    def __init__(
        self,
        sizes: Sequence[int] | Int64[np.ndarray, " series"],
        *,
        most_series: int = MOST_SERIES,
        alpha: float = ALPHA,
        lengths: tuple[int, int] = LENGTHS,
    ) -> None:
        if most_series < 1 or alpha <= 0 or not 1 <= lengths[0] <= lengths[1]:
            values = f"got {most_series}, {alpha}, {lengths}"
            raise ValueError(f"tsmixup: expected most_series >= 1, alpha > 0, 1 <= shortest <= longest, {values}")
        steps = np.asarray(sizes, dtype=np.int64)
        longest = int(steps.max(initial=0))
        if longest < lengths[0]:
            raise ValueError(f"tsmixup: expected a series of at least {lengths[0]} steps, got at most {longest}")
        self.most_series, self.alpha, self.lengths = most_series, alpha, (lengths[0], min(lengths[1], longest))
        self._by_size = np.argsort(steps, kind="stable")
        self._sizes = steps[self._by_size]

    def draw(self, rng: np.random.Generator) -> Mixture:
        """Draw one mixture."""
        count = int(rng.integers(1, self.most_series + 1))
        length = int(rng.integers(self.lengths[0], self.lengths[1] + 1))
        ranks = rng.integers(int(np.searchsorted(self._sizes, length)), len(self._sizes), size=count)
        weights = rng.dirichlet(np.full(count, self.alpha))
        starts = [int(rng.integers(steps - length + 1)) for steps in self._sizes[ranks]]
        return Mixture(length, self._by_size[ranks], starts, weights)


def tsmixup(series: Sequence[np.ndarray], rng: np.random.Generator) -> Iterator[Float32[np.ndarray, " step"]]:
    """Yield mixed series without end. The arrays are indexed when needed, so `series` may be lazy.

    Raises:
        ValueError: no series has LENGTHS[0] steps. Raised at the call.
    """
    return _stream(series, MixtureLaw([len(values) for values in series]), rng)


def scale_by_mean(values: np.ndarray) -> Float64[np.ndarray, " step"]:
    """Divide values by their mean absolute value (NaN left out).

    Unscaled where that mean is 0 or nothing is observed.
    """
    values = np.asarray(values, dtype=np.float64)
    observed = np.abs(values[~np.isnan(values)])
    scale = observed.mean() if observed.size else 0.0
    return values / scale if scale > 0 else values


def _stream(
    series: Sequence[np.ndarray], law: MixtureLaw, rng: np.random.Generator
) -> Iterator[Float32[np.ndarray, " step"]]:
    while True:
        mixture = law.draw(rng)
        yield mixture.of([series[index] for index in mixture.picked])

"""Windows of real series for a training, varied by longer steps, mixing and sign, so that few series suffice."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from jaxtyping import Float32

from tsfmscope.errors import DataError
from tsfmscope.series.files.sources import load_parquet
from tsfmscope.training.options import RealSeries

# A file is drawn with a probability proportional to its number of values to this power, so that no file dominates.
EVENNESS = 0.25
# Probabilities that a window has longer steps than its series, that another window is added to it, and that its sign
# is changed.
LONGER_STEPS, MIXED, NEGATED = 0.35, 0.2, 0.15
# Steps of a series that make one step of a window with longer steps.
FACTORS = (2, 3, 4, 5, 6, 7, 8, 12, 24)
# Steps that are left of a series of longer steps, at least.
SHORTEST = 48
# Share of a window's series, at its end, where the future may be cut off.
LAST = 0.25


class RealWindows:
    """Draws windows from the series of files.

    DataError if a file cannot be read or has another checksum than the recipe states.
    """

    def __init__(self, real: RealSeries) -> None:
        self._files = [
            _read(Path(real.folder, f"{name}.parquet"), sums, real.without) for name, sums in real.files.items()
        ]
        sizes = np.array([sum(map(len, series)) for series in self._files], dtype=float) ** EVENNESS
        self._shares = sizes / sizes.sum()

    def draw(
        self, rng: np.random.Generator, count: int, steps: int, *, context: int, min_past: int
    ) -> Float32[np.ndarray, "window step"]:
        """Draw `count` windows of `steps` steps, of which `context` are past, [N, T].

        Steps before a series starts and after it ends are NaN, as gaps are.
        """
        values = np.full((count, steps), np.nan, dtype=np.float32)
        for row in values:
            self._fill(rng, row, context, min_past)
            if rng.random() < MIXED:
                second = np.full_like(row, np.nan)
                self._fill(rng, second, context, min_past)
                _mix(rng, row, second)
            if rng.random() < NEGATED:
                row *= -1
        return values

    def _fill(self, rng: np.random.Generator, row: np.ndarray, context: int, min_past: int) -> None:
        """Write a window of a random series into `row`."""
        series = self._files[rng.choice(len(self._files), p=self._shares)]
        values = series[int(rng.integers(len(series)))]
        factors = [factor for factor in FACTORS if len(values) >= factor * SHORTEST]
        factor = int(rng.choice(factors)) if factors and rng.random() < LONGER_STEPS else 1
        horizon, length = len(row) - context, len(values) // factor
        latest = max(length - min(horizon, int(LAST * length)), 1)
        origin = int(rng.integers(min(min_past, length // 2), latest + 1))
        first = max(0, origin - context)
        window = values[first * factor : min(origin + horizon, length) * factor]
        if factor > 1:
            window = window.reshape(-1, factor).mean(axis=1)
        start = context - (origin - first)
        row[start : start + len(window)] = window


def _read(path: Path, sums: str, without: str | None) -> Sequence[np.ndarray]:
    try:
        found = hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror}); put the recipe's real series there") from error
    if found != sums:
        raise DataError(f"{path}: SHA-256 is {found}, the recipe states {sums}; fetch the recipe's version of the file")
    pattern = re.compile(without) if without else None
    series = [item for item in load_parquet(path) if not (pattern and pattern.search(item.series))]
    return [np.asarray(item.values, dtype=np.float32) for item in series]


def _mix(rng: np.random.Generator, row: np.ndarray, second: np.ndarray) -> None:
    """Add another window to `row`, in place, with a random weight relative to their standard deviations."""
    known = np.isfinite(row) & np.isfinite(second)
    # In float64, because squares of large float32 values overflow.
    own, added = row[known].astype(np.float64), second[known].astype(np.float64)
    weight = rng.uniform(0.1, 1.0)
    if len(own) and own.std() > 0 and added.std() > 0:
        row[known] += weight * own.std() * (added - added.mean()) / added.std()

"""Tokenizer of WaveToken, arrays only: series as quantised wavelet coefficients, and back."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int

# Median |z| of a standard normal (Donoho and Johnstone 1994).
GAUSSIAN_MAD = 0.6745
# Largest condition number of the matrix whose inverse turns coefficients into series.
WORST_CONDITION = 1e6


@dataclass(frozen=True)
class WaveletBins:
    """Maximally decimated wavelet transform, and bins that all its coefficients share.

    Coefficients are ordered coarse to fine (a_J, d_J, ..., d_1). A series is reflected at its ends. Of the
    coefficients that this adds, those centred outside the series are dropped. So there are as many
    coefficients as steps, and a line has no detail except in the last coefficient. The bins' centres are
    evenly spaced in [low, high]; a coefficient outside goes to the nearest bin.

    threshold "universal": hard thresholding of the detail coefficients at sigma (2 log n)^1/2, with sigma
    from the finest ones (VisuShrink, Donoho and Johnstone 1994).

    Source: Masserano et al. 2025 for the wavelet, the order and the shared bins. The ends, the range of the
    bins and their even spacing are our choice, since neither code nor weights of theirs are public.
    """

    wavelet: str
    levels: int
    low: float
    high: float
    count: int
    threshold: str

    @property
    def cell(self) -> int:
        """Number of steps per coefficient of the coarsest level; lengths are multiples of it."""
        return int(2**self.levels)

    def coefficients(self, series: Float[np.ndarray, "*window step"]) -> Float[np.ndarray, "*window step"]:
        """Return as many coefficients as steps, coarse to fine.

        ValueError where the length is not a multiple of `cell`.
        """
        parts = self._parts(series, self._filters())
        if self.threshold == "universal":
            sigma = np.median(np.abs(parts[-1]), axis=-1, keepdims=True) / GAUSSIAN_MAD
            least = sigma * np.sqrt(2 * np.log(series.shape[-1]))
            parts[1:] = [np.where(np.abs(part) < least, 0.0, part) for part in parts[1:]]
        return np.concatenate(parts, axis=-1)

    def series(self, coefficients: Float[np.ndarray, "*window step"]) -> Float[np.ndarray, "*window step"]:
        """Return the series of coefficients: the inverse of `coefficients` without a threshold."""
        back: np.ndarray = coefficients @ _synthesis(self, coefficients.shape[-1])
        return back

    def reading(self, steps: Bool[np.ndarray, "*window step"]) -> Bool[np.ndarray, "*window step"]:
        """Return which coefficients read at least one of these steps."""
        parts = self._parts(steps.astype(np.float64), self._filters(magnitude=True))
        return np.concatenate(parts, axis=-1) > 0

    def bins(self, coefficients: Float[np.ndarray, "*window step"]) -> Int[np.ndarray, "*window step"]:
        """Return the numbers of the bins of coefficients, 0..count - 1."""
        width = (self.high - self.low) / (self.count - 1)
        places = np.clip((coefficients - self.low) / width, 0, self.count - 1)
        return np.rint(places).astype(np.int64)

    def centres(self, bins: Int[np.ndarray, "*window step"]) -> Float[np.ndarray, "*window step"]:
        """Return the centres of bins."""
        values: np.ndarray = np.linspace(self.low, self.high, self.count)[bins]
        return values

    def _parts(self, series: np.ndarray, filters: Any) -> list[np.ndarray]:
        import pywt

        if not series.shape[-1] or series.shape[-1] % self.cell:
            raise ValueError(f"series: got {series.shape[-1]} steps, expected a multiple of {self.cell}")
        rest, details = series, []
        # First coefficient that is centred on a step of the series.
        first = (filters.dec_len // 2 - 1) // 2
        for _ in range(self.levels):
            half = rest.shape[-1] // 2
            both = pywt.dwt(rest, filters, mode="reflect", axis=-1)
            rest, detail = (part[..., first : first + half] for part in both)
            details.append(detail)
        return [rest, *reversed(details)]

    def _filters(self, *, magnitude: bool = False) -> Any:
        import pywt

        wavelet = pywt.Wavelet(self.wavelet)
        if not magnitude:
            return wavelet
        bank = [np.abs(filter_values).tolist() for filter_values in wavelet.filter_bank]
        return pywt.Wavelet("reading", filter_bank=bank)


@functools.lru_cache(maxsize=8)
def _synthesis(bins: WaveletBins, length: int) -> Float[np.ndarray, "step step"]:
    """Return the matrix that turns coefficients into the series, multiplied from the right.

    ValueError where the transform cannot be inverted accurately.
    """
    # Row i contains the coefficients of a unit step at i.
    analysis = np.concatenate(bins._parts(np.eye(length), bins._filters()), axis=-1)
    if (condition := np.linalg.cond(analysis)) > WORST_CONDITION:
        raise ValueError(
            f"wavelet {bins.wavelet!r}: its transform of {length} steps has condition {condition:.0e}, so coefficients "
            "do not give the series back; take a symmetric one, such as bior2.2 or haar"
        )
    inverse: np.ndarray = np.linalg.inv(analysis)
    return inverse


def fill_missing(values: Float[np.ndarray, "window step"]) -> Float[np.ndarray, "window step"]:
    """Fill missing steps linearly between observed ones; 0 where nothing is observed.

    Missing steps at either end get the nearest observed value. A line has no detail under a wavelet with two
    vanishing moments, so a gap adds none.
    """
    out, steps = np.array(values, dtype=np.float64), np.arange(values.shape[1])
    for window in np.flatnonzero(np.isnan(out).any(axis=1)):
        is_observed = ~np.isnan(out[window])
        out[window] = np.interp(steps, steps[is_observed], out[window, is_observed]) if is_observed.any() else 0.0
    return out

"""Series as quantised wavelet coefficients and back: the tokenizer of WaveToken, arrays only."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int

GAUSSIAN_MAD = 0.6745  # median |z| of a standard normal (Donoho and Johnstone 1994)
WORST_CONDITION = 1e6  # of the matrix whose inverse makes series of coefficients


@dataclass(frozen=True)
class WaveletBins:
    """A maximally decimated transform, coarse to fine (a_J, d_J, ..., d_1), and bins that all its coefficients share.

    At its ends a series is reflected, and of the coefficients that this adds those centred outside are dropped: there
    are as many coefficients as steps, and a line has no detail but in the last one. The bins' centres are evenly in
    [low, high], what lies outside goes to the nearest. threshold "universal": hard thresholding of the detail
    coefficients, sigma (2 log n)^1/2 with sigma from the finest ones (VisuShrink, Donoho and Johnstone 1994).
    Source: Masserano et al. 2025 for the wavelet, the order and the shared bins; the ends, the range of the bins and
    their even spacing are our choice, since neither code nor weights of theirs are public.
    """

    wavelet: str
    levels: int
    low: float
    high: float
    count: int
    threshold: str

    @property
    def cell(self) -> int:
        """Steps that a coarsest coefficient stands for; lengths are multiples of it."""
        return int(2**self.levels)

    def coefficients(self, series: Float[np.ndarray, "*window step"]) -> Float[np.ndarray, "*window step"]:
        """As many coefficients as steps, coarse to fine. ValueError where the length is no multiple of `cell`."""
        parts = self._parts(series, self._filters())
        if self.threshold == "universal":
            sigma = np.median(np.abs(parts[-1]), axis=-1, keepdims=True) / GAUSSIAN_MAD
            least = sigma * np.sqrt(2 * np.log(series.shape[-1]))
            parts[1:] = [np.where(np.abs(part) < least, 0.0, part) for part in parts[1:]]
        return np.concatenate(parts, axis=-1)

    def series(self, coefficients: Float[np.ndarray, "*window step"]) -> Float[np.ndarray, "*window step"]:
        """The inverse of `coefficients` without a threshold."""
        back: np.ndarray = coefficients @ _synthesis(self, coefficients.shape[-1])
        return back

    def reading(self, steps: Bool[np.ndarray, "*window step"]) -> Bool[np.ndarray, "*window step"]:
        """The coefficients that read one of these steps at least."""
        parts = self._parts(steps.astype(np.float64), self._filters(magnitude=True))
        return np.concatenate(parts, axis=-1) > 0

    def bins(self, coefficients: Float[np.ndarray, "*window step"]) -> Int[np.ndarray, "*window step"]:
        """Numbers of the bins, 0..count - 1."""
        width = (self.high - self.low) / (self.count - 1)
        places = np.clip((coefficients - self.low) / width, 0, self.count - 1)
        return np.rint(places).astype(np.int64)

    def centres(self, bins: Int[np.ndarray, "*window step"]) -> Float[np.ndarray, "*window step"]:
        """The bins' centres."""
        found: np.ndarray = np.linspace(self.low, self.high, self.count)[bins]
        return found

    def _parts(self, series: np.ndarray, filters: Any) -> list[np.ndarray]:
        import pywt

        if not series.shape[-1] or series.shape[-1] % self.cell:
            raise ValueError(f"series: got {series.shape[-1]} steps, expected a multiple of {self.cell}")
        rest, details = series, []
        first = (filters.dec_len // 2 - 1) // 2  # of the coefficients that are centred on a step of the series
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
        bank = [np.abs(one).tolist() for one in wavelet.filter_bank]
        return pywt.Wavelet("reading", filter_bank=bank)


@functools.lru_cache(maxsize=8)
def _synthesis(bins: WaveletBins, length: int) -> Float[np.ndarray, "step step"]:
    """What coefficients are multiplied with from the right to give the series."""
    analysis = np.concatenate(bins._parts(np.eye(length), bins._filters()), axis=-1)  # a row: of one unit step
    if (condition := np.linalg.cond(analysis)) > WORST_CONDITION:
        raise ValueError(
            f"wavelet {bins.wavelet!r}: its transform of {length} steps has condition {condition:.0e}, so coefficients "
            "do not give the series back; take a symmetric one, such as bior2.2 or haar"
        )
    inverse: np.ndarray = np.linalg.inv(analysis)
    return inverse


def filled(values: Float[np.ndarray, "window step"]) -> Float[np.ndarray, "window step"]:
    """Missing steps on the line between their neighbours, held at the ends; 0 where nothing is observed.

    A line has no detail under a wavelet with two vanishing moments, so a gap adds none.
    """
    out, steps = np.array(values, dtype=np.float64), np.arange(values.shape[1])
    for window in np.flatnonzero(np.isnan(out).any(axis=1)):
        seen = ~np.isnan(out[window])
        out[window] = np.interp(steps, steps[seen], out[window, seen]) if seen.any() else 0.0
    return out

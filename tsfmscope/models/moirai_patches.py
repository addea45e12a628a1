"""Preparation of windows for Moirai: patch sizes by frequency, scaled patches, sample and time ids."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

import numpy as np
from jaxtyping import Bool, Float, Float32, Int

from tsfmscope.models.common.scale import clip_float32

# Least and largest patch size of a frequency: uni2ts, transform/patch.py, DefaultPatchSizeConstraints.
RANGES = {
    "s": (64, 128), "min": (32, 128), "h": (32, 64), "D": (16, 32), "B": (16, 32), "W": (16, 32), "M": (8, 32),
    "Q": (1, 8), "Y": (1, 8),
}  # fmt: skip
# Our choice for synthetic series, which have no frequency: the range of days.
NO_FREQUENCY = (16, 32)
# pandas' newer names of month, quarter and year.
ALIASES = {"ME": "M", "MS": "M", "BME": "M", "BMS": "M", "QE": "Q", "QS": "Q", "BQE": "Q", "BQS": "Q"}
ALIASES |= {"YE": "Y", "YS": "Y", "BYE": "Y", "BYS": "Y"}
# Added to the variance of a context, in the data's units: minimum_scale of uni2ts' PackedStdScaler.
MINIMUM_SCALE = 1e-5
# Largest absolute value of a scaled step, so that float32 squares of activations do not overflow.
LARGEST = 2.0**60
# Arrays of `Tokens`, in the order of the fields of Packed.
NAMES = ("patches", "masks", "sample_id", "time_id", "loc", "scale")


@dataclass(frozen=True, eq=False)
class Packed:
    """Scaled windows, cut into patches.

    observed: which steps are observed. sample_id: 0 for patches before the first observed step, else 1.
    time_id: number of patches since the patch of that step. loc, scale: in the data's units.
    start: index of the first token of the future.
    """

    patches: Float32[np.ndarray, "window token patch"]
    observed: Bool[np.ndarray, "window token patch"]
    sample_id: Int[np.ndarray, "window token"]
    time_id: Int[np.ndarray, "window token"]
    loc: Float[np.ndarray, " window"]
    scale: Float[np.ndarray, " window"]
    start: int

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the arrays as `Tokens` keeps them; loc and scale are rounded to float32."""
        arrays = (self.patches, self.observed, self.sample_id, self.time_id)
        return dict(zip(NAMES, (*arrays, clip_float32(self.loc), clip_float32(self.scale)), strict=True))

    @classmethod
    def of(cls, arrays: Mapping[str, np.ndarray], start: int) -> Self:
        """Return the windows of arrays that `arrays` returned."""
        patches, masks, sample_id, time_id, loc, scale = (arrays[name] for name in NAMES)
        return cls(patches, masks, sample_id, time_id, loc, scale, start)


def patch_range(freq: str) -> tuple[int, int]:
    """Return the smallest and largest patch size of a pandas frequency.

    As in the package, the frequency's multiple and anchor are ignored. The result is NO_FREQUENCY for an
    empty frequency, and for one for which the package has no range (milliseconds). The package's own class
    does not know the names that pandas has used since 2.2.
    """
    from pandas.tseries.frequencies import to_offset

    if not freq:
        return NO_FREQUENCY
    with warnings.catch_warnings():
        # Files may contain the old names of frequencies.
        warnings.simplefilter("ignore", FutureWarning)
        name = to_offset(freq).name.partition("-")[0]
    return RANGES.get(ALIASES.get(name, name), NO_FREQUENCY)


def pack(
    context: Float[np.ndarray, "window step"],
    future: Float[np.ndarray, "window horizon"],
    *,
    size: int,
    minimum_scale: float | None,
    fills_gaps: bool = False,
) -> Packed:
    """Return scaled patches of `size` steps of context and future; NaN is a missing step.

    The context is padded to whole patches on the left, the future on the right. Missing steps of the context
    are set to 0 before scaling (uni2ts, pretrain.py and forecast.py). Missing steps of the future, which have
    no weight, and patches before the first observed step are set to 0 after scaling. Scaled values are
    clipped to ±LARGEST.
    fills_gaps: missing steps of context and future, after the first observed one, are `causal_means` instead, for
    Moirai 2.
    minimum_scale: added to the variance; None leaves the values unscaled.
    """
    left, right = -context.shape[1] % size, -future.shape[1] % size
    steps = np.concatenate((context, future), axis=1).astype(np.float64)
    steps = np.pad(steps, ((0, 0), (left, right)), constant_values=np.nan)
    patches = steps.reshape(len(steps), steps.shape[1] // size, size)  # [W, T, P]
    observed, start = ~np.isnan(patches), (left + context.shape[1]) // size
    filled = np.where(observed, patches, 0.0)
    loc, scale = _compute_loc_scale(filled[:, :start], observed[:, :start], minimum_scale)
    if fills_gaps:
        filled = causal_means(steps).reshape(filled.shape)
    scaled = (filled - loc[:, None, None]) / scale[:, None, None]
    begun = np.logical_or.accumulate(observed[:, :start].any(axis=-1), axis=1)  # [W, T of the context]
    scaled[:, :start][~begun] = 0.0
    if not fills_gaps:
        scaled[:, start:][~observed[:, start:]] = 0.0
    times = np.maximum(begun.cumsum(axis=1) - 1, 0)
    after = times.max(axis=1, keepdims=True, initial=0) + 1 + np.arange(patches.shape[1] - start)
    sample_id = np.concatenate((begun, np.ones_like(after)), axis=1).astype(np.int8)
    time_id = np.concatenate((times, after), axis=1).astype(np.int32)
    clipped = np.clip(scaled, -LARGEST, LARGEST).astype(np.float32)
    return Packed(clipped, observed, sample_id, time_id, loc, scale, start)


def causal_means(steps: Float[np.ndarray, "window step"]) -> Float[np.ndarray, "window step"]:
    """Return steps where a missing one is the mean of all steps before it.

    In that mean, a missing step counts as the last observed one before it. Before the first observed step, all are 0.
    Source: gluonts, transform/feature.py, CausalMeanValueImputation.
    """
    observed, at = ~np.isnan(steps), np.arange(steps.shape[1])
    last = np.maximum.accumulate(np.where(observed, at, -1), axis=1)
    held = np.where(last >= 0, np.take_along_axis(np.nan_to_num(steps), np.maximum(last, 0), axis=1), 0.0)
    before = np.cumsum(held, axis=1) - held
    since = (last >= 0).cumsum(axis=1) - 1
    means = np.where(last >= 0, before / np.maximum(since, 1), 0.0)
    filled: np.ndarray = np.where(observed, np.nan_to_num(steps), means)
    return filled


def _compute_loc_scale(
    filled: Float[np.ndarray, "window token patch"],
    observed: Bool[np.ndarray, "window token patch"],
    minimum_scale: float | None,
) -> tuple[Float[np.ndarray, " window"], Float[np.ndarray, " window"]]:
    """Return loc and scale of each window.

    loc is the mean of the observed steps, scale the root of their variance (n - 1) plus minimum_scale. If
    nothing is observed, loc is 0. For a constant window, loc is its value. In both cases scale is the root of
    minimum_scale. If minimum_scale is None, they are 0 and 1.
    Source: uni2ts, module/packed_scaler.py, PackedStdScaler and PackedNOPScaler.
    """
    if minimum_scale is None:
        return np.zeros(len(filled)), np.ones(len(filled))
    count = observed.sum(axis=(1, 2))
    loc = filled.sum(axis=(1, 2)) / np.maximum(count, 1)
    squares = np.where(observed, filled - loc[:, None, None], 0.0) ** 2
    return loc, np.sqrt(squares.sum(axis=(1, 2)) / np.maximum(count - 1, 1) + minimum_scale)

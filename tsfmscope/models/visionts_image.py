"""Drawing of a series as an image, and reading of a forecast from one (Chen et al. 2025, section 3).

The code is written from that paper and the authors' code (Keytoyze/VisionTS, visionts/model.py). A patch is
named by its number in the grid, row by row.

In training, the period is from the autocorrelation of a window's context: a corpus has no frequencies from which
`find_period` could take it.
"""

from __future__ import annotations

import functools
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Float32, Float64, Int32, Int64

if TYPE_CHECKING:
    import torch

# Added to a context's variance in the release, in the data's units.
VARIANCE = 1e-5
# r in the release: the standard deviation of a context in pixel values.
NORM_CONST = 0.4
# c in the release: share of the columns that a context would get if it were the whole image.
ALIGN_CONST = 0.4
# Frequency -> steps of its periods, of which the first is taken; from the release (util.py).
PERIODS = {
    "S": (3600,), "s": (3600,), "T": (1440, 10080), "min": (1440, 10080), "H": (24, 168), "h": (24, 168),
    "D": (7, 30, 365), "W": (52, 4), "M": (12, 6, 3), "ME": (12, 6, 3), "B": (5,), "Q": (4, 2), "QE": (4, 2),
}  # fmt: skip
# Periods of usual frequencies, in steps, from quarters (4) to hours of a week (168); 1: none.
USUAL_PERIODS = np.array([1, 4, 5, 7, 12, 24, 30, 48, 52, 96, 144, 168])
# Standard errors of the autocorrelation of white noise, 1 / sqrt(steps), that a usual period must exceed.
CLEAR = 2.0
# The same for any other lag. It is higher, since there are many more of them.
CLEAR_FOR_ANY_LAG = 4.0
# Share of training windows that are drawn in columns of a random usual period.
RANDOM_PERIODS = 0.2
# Share of a context's range below which what is left after a line is subtracted is rounding error.
ROUNDING = 1e-5


def choose_periods(
    past: Float[np.ndarray, "window step"], lengths: Int64[np.ndarray, " window"], fixed_period: int | None
) -> Int64[np.ndarray, " window"]:
    """Return the period of each context that is cut to its last `lengths` steps, as `VisionTS.loss` describes it.

    fixed_period: the period of all contexts that are long enough; None where the config has none.
    """
    import torch

    if fixed_period:
        return np.where(fixed_period <= lengths, fixed_period, 1)
    chance, choice = torch.rand(2, len(lengths), dtype=torch.float64).numpy()
    n_fitting = np.searchsorted(2 * USUAL_PERIODS, lengths, side="right")
    random_periods = USUAL_PERIODS[(choice * n_fitting).astype(np.int64)]
    return np.where(chance < RANDOM_PERIODS, random_periods, estimate_periods(past, lengths))


def largest_filled_context(context: Float[np.ndarray, "window step"]) -> Int64[np.ndarray, " window"]:
    """Return the largest of C, C // 2, C // 4 ... and 1 that each context [W, C] fills.

    A context counts from its first observed step on; without one its length is 1.
    """
    steps = context.shape[1]
    halves = np.array(sorted({max(steps >> power, 1) for power in range(steps.bit_length())}))
    filled = np.where(np.isnan(context).all(axis=1), 1, steps - (~np.isnan(context)).argmax(axis=1))
    largest: Int64[np.ndarray, " window"] = halves[np.searchsorted(halves, filled, side="right") - 1]
    return largest


def estimate_periods(
    context: Float[np.ndarray, "window step"], lengths: Int64[np.ndarray, " window"]
) -> Int64[np.ndarray, " window"]:
    """Return the period of the last `lengths` steps of each context, in steps; 1 where none is clear.

    It is the usual period, at most half the steps long, that has the largest autocorrelation. If another lag's
    is larger by a standard error, 1 / sqrt(steps), it is that lag. A straight line is subtracted before. The
    autocorrelation at a period must be clearly positive. It must also be clearly larger than at one of the
    shorter lags, since all short lags of a smooth series have a large one. Sums over few steps are not scaled
    up, so that a period comes before most of its multiples. Missing steps are left out of the sums. Contexts
    that are constant, without observed steps, or shorter than four steps have period 1.
    """
    lags = np.arange(context.shape[1] // 2 + 1)
    is_in_window = np.arange(context.shape[1]) >= context.shape[1] - lengths[:, None]
    correlations = _autocorrelations(context.astype(np.float64), ~np.isnan(context) & is_in_window)[:, : len(lags)]
    error = 1 / np.sqrt(lengths)[:, None]
    # Lowest autocorrelation at lags 1, 2, ... below each lag.
    lowest = np.full(correlations.shape, np.inf)
    lowest[:, 2:] = np.minimum.accumulate(correlations[:, 1:-1], axis=1)
    rise = np.minimum(correlations, correlations - lowest)
    is_clear = (rise > CLEAR * error) & (2 * lags <= lengths[:, None])
    is_usual = np.isin(lags, USUAL_PERIODS)
    usual_period, usual_correlation = _largest(correlations, is_clear & is_usual)
    lag, correlation = _largest(correlations, is_clear & (correlations > CLEAR_FOR_ANY_LAG * error))
    periods: Int64[np.ndarray, " window"] = np.where(correlation > usual_correlation + error[:, 0], lag, usual_period)
    return periods


def _autocorrelations(
    values: Float64[np.ndarray, "window step"], is_counted: Bool[np.ndarray, "window step"]
) -> Float64[np.ndarray, "window step"]:
    """Return sum_t y(t) y(t + lag) / sum_t y(t)^2 for every lag.

    y: the values minus their straight line. Steps that are not counted are left out. Without spread, 0.
    """
    count = np.maximum(is_counted.sum(axis=1, keepdims=True), 1)
    low = np.where(is_counted, values, np.inf).min(axis=1, keepdims=True)
    high = np.where(is_counted, values, -np.inf).max(axis=1, keepdims=True)
    # Halves, since the range of finite float64 numbers may be infinite.
    spread = high / 2 - low / 2
    has_spread = np.isfinite(spread) & (spread > 0)
    unit = np.where(has_spread, spread, 1.0)
    y = np.where(is_counted & has_spread, (values / 2 - np.where(has_spread, low, 0.0) / 2) / unit, 0.0)
    y = np.where(is_counted, y - y.sum(axis=1, keepdims=True) / count, 0.0)
    time = np.where(is_counted, np.arange(values.shape[1], dtype=float), 0.0)
    time = np.where(is_counted, time - time.sum(axis=1, keepdims=True) / count, 0.0)
    slope = (time * y).sum(axis=1, keepdims=True) / np.maximum((time**2).sum(axis=1, keepdims=True), 1.0)
    y -= slope * time
    steps = values.shape[1]
    power = np.abs(np.fft.rfft(y, 2 * steps)) ** 2
    sums = np.fft.irfft(power, 2 * steps)[:, :steps]
    total = sums[:, :1]
    correlations: Float64[np.ndarray, "window step"] = np.divide(
        sums, total, out=np.zeros_like(sums), where=total > ROUNDING**2 * count
    )
    return correlations


def _largest(
    correlations: Float64[np.ndarray, "window lag"], is_allowed: Bool[np.ndarray, "window lag"]
) -> tuple[Int64[np.ndarray, " window"], Float64[np.ndarray, " window"]]:
    """Return the allowed lag of the largest autocorrelation, and that; 1 and 0 where no lag is allowed."""
    allowed = np.where(is_allowed, correlations, 0.0)
    largest = allowed.max(axis=1)
    return np.where(largest > 0, allowed.argmax(axis=1), 1), largest


class Scaled(NamedTuple):
    """Contexts in pixel values, with missing steps filled.

    start: the first observed step, C where there is none.
    """

    values: Float32[np.ndarray, "window step"]
    observed: Bool[np.ndarray, "window step"]
    start: Int32[np.ndarray, " window"]
    loc: Float64[np.ndarray, " window"]
    scale: Float64[np.ndarray, " window"]


@dataclass(frozen=True)
class Layout:
    """Position of a context of `length` steps and its horizon in an image of `grid` x `grid` patches.

    period: steps per column. left: steps put before the context. columns: columns of both, before resizing.
    shown: columns of patches that they are drawn on; the others are masked. patch: pixels per side.
    """

    length: int
    horizon: int
    period: int
    left: int
    columns: int
    shown: int
    grid: int
    patch: int

    @property
    def visible(self) -> Int64[np.ndarray, " token"]:
        """Numbers of the patches that are not masked, ascending."""
        return np.arange(self.grid**2).reshape(self.grid, self.grid)[:, : self.shown].ravel()

    @property
    def size(self) -> int:
        """Pixels per side."""
        return self.grid * self.patch


@functools.lru_cache(maxsize=4096)
def make_layout(length: int, horizon: int, period: int, *, grid: int, patch: int) -> Layout:
    """Return the layout that the release's `update_config` computes.

    It has whole periods and the share of the image that the context gets. A context may be so short that the
    image ends before the horizon, where the release forecasts too few steps. Then more whole periods are put
    before it.
    """
    n_future_columns = -(-horizon // period)
    columns = max(-(-length // period), -(-n_future_columns // (grid - 1)))
    share = (columns * period) / (columns * period + n_future_columns * period)
    shown = max(int(share * grid * ALIGN_CONST), 1)
    return Layout(length, horizon, period, columns * period - length, columns, shown, grid, patch)


def find_period(freq: str, season: int, length: int) -> int:
    """Return steps per column: the first of the frequency's PERIODS that fits into `length` steps, else 1.

    Without a frequency that has periods, `season` takes their place. The release's list ends in 1 too.
    """
    return next((steps for steps in _periods(freq) or (season,) if 1 <= steps <= length), 1)


@functools.lru_cache
def _periods(freq: str) -> tuple[int, ...]:
    """Return PERIODS of a pandas frequency, divided by its multiple where that is exact.

    Without a frequency there are none.
    """
    from gluonts.time_feature import norm_freq_str
    from pandas.tseries.frequencies import to_offset

    if not freq:
        return ()
    with warnings.catch_warnings():
        # pandas renamed H, M, Y and others; files may have the old names.
        warnings.simplefilter("ignore", FutureWarning)
        offset = to_offset(freq)
    periods = PERIODS.get(norm_freq_str(offset.name), ())
    return tuple(steps // offset.n for steps in periods if steps % offset.n == 0)


def to_pixel_values(context: Float[np.ndarray, "window step"]) -> Scaled:
    """Return contexts in pixel values: centred and divided by sqrt(variance + 1e-5) / 0.4, as in the release.

    Scaling is done in float64. Missing steps repeat the one before. Those before the first observed step
    repeat it, and do not count in the moments.
    """
    values, observed = context.astype(np.float64), ~np.isnan(context)
    steps = np.arange(values.shape[1])
    start = np.where(observed.any(axis=1), observed.argmax(axis=1), len(steps)).astype(np.int32)
    last = np.maximum.accumulate(np.where(observed, steps, -1), axis=1)
    filled = np.take_along_axis(values, np.maximum(last, np.minimum(start, len(steps) - 1)[:, None]), axis=1)
    filled = np.nan_to_num(filled, nan=0.0)
    counted = steps >= start[:, None]
    count = np.maximum(counted.sum(axis=1), 1)
    loc = np.where(counted, filled, 0.0).sum(axis=1) / count
    centred = filled - loc[:, None]
    variance = np.where(counted, centred**2, 0.0).sum(axis=1) / count
    scale = np.sqrt(variance + VARIANCE) / NORM_CONST
    return Scaled((centred / scale[:, None]).astype(np.float32), observed, start, loc, scale)


def draw_patches(
    steps: Float[torch.Tensor, "window step"], layout: Layout, *, repeat: bool = True
) -> Float[torch.Tensor, "window token pixel"]:
    """Return the visible patches of contexts, each [patch * patch], row by row; all channels are equal.

    repeat: whether the first step is repeated before the context; else zeros are put there.
    """
    import torch

    first = steps[:, :1] if repeat else torch.zeros_like(steps[:, :1])
    padded = torch.cat((first.expand(-1, layout.left), steps), dim=1)
    folded = padded.view(len(steps), 1, layout.columns, layout.period).transpose(2, 3)
    image = _resize(folded, layout.size, layout.shown * layout.patch)  # [B, 1, S, S']
    parts = image.view(len(steps), layout.grid, layout.patch, layout.shown, layout.patch)
    return parts.transpose(2, 3).flatten(3).flatten(1, 2)


def read_off(
    patches: Float[torch.Tensor, "window token pixel"], layout: Layout, channels: int
) -> Float[torch.Tensor, "window horizon"]:
    """Return the horizon's steps from all patches of an image.

    Each patch is [patch * patch * channels], channels last; their mean is taken.
    """
    parts = patches.view(len(patches), layout.grid, layout.grid, layout.patch, layout.patch, channels).mean(dim=-1)
    image = parts.transpose(2, 3).reshape(len(patches), 1, layout.size, layout.size)
    scale = layout.columns / (layout.shown * layout.patch)
    unfolded = _resize(image, layout.period, round(layout.size * scale))
    steps = unfolded[:, 0].transpose(1, 2).flatten(1)
    first = layout.left + layout.length
    return steps[:, first : first + layout.horizon]


def _resize(image: torch.Tensor, height: int, width: int) -> torch.Tensor:
    from torch.nn import functional

    return functional.interpolate(image, size=(height, width), mode="bilinear", align_corners=False, antialias=False)

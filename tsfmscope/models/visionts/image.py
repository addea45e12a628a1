"""Drawing of a series as an image, and reading of a forecast from one (Chen et al. 2025, section 3).

The code is written from that paper and the authors' code (Keytoyze/VisionTS, visionts/model.py). A patch is
named by its number in the grid, row by row.
"""

from __future__ import annotations

import functools
import warnings
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Float32, Float64, Int32, Int64
from torch.nn import functional

from tsfmscope.models.visionts.checkpoint import VARIANCE

# r in the release: the standard deviation of a context in pixel values.
NORM_CONST = 0.4
# c in the release: share of the columns that a context would get if it were the whole image.
ALIGN_CONST = 0.4
# Frequency -> steps of its periods, of which the first is taken; from the release (util.py).
PERIODS = {
    "S": (3600,),
    "s": (3600,),
    "T": (1440, 10080),
    "min": (1440, 10080),
    "H": (24, 168),
    "h": (24, 168),
    "D": (7, 30, 365),
    "W": (52, 4),
    "M": (12, 6, 3),
    "ME": (12, 6, 3),
    "B": (5,),
    "Q": (4, 2),
    "QE": (4, 2),
}


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
def layout(length: int, horizon: int, period: int, *, grid: int, patch: int) -> Layout:
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
    return functional.interpolate(image, size=(height, width), mode="bilinear", align_corners=False, antialias=False)

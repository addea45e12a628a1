"""Windows as TimesFM reads them: gaps interpolated, whole patches, the location and scale of each, frequency ids."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Float32

FREQUENCIES = {"W": 1, "M": 1, "Q": 2, "Y": 2}  # Google's freq_map: 0 daily and finer, 1 weekly and monthly, 2 coarser
ENOUGH = 3  # observed steps of the patch that 2.0 takes its location and scale from
TOLERANCE = 1e-6  # a smaller scale is 1: of 2.5, and of the loss of both
LARGEST = 2.0**40  # of a scaled step, so that float32 squares of what the network makes of it do not overflow


@dataclass(frozen=True, eq=False)
class Steps:
    """Contexts as whole patches, in float64 and without gaps; what is masked, before the first observed step, is 0."""

    values: Float[np.ndarray, "window step"]
    masked: Bool[np.ndarray, "window step"]
    missing: Bool[np.ndarray, "window step"]


@dataclass(frozen=True, eq=False)
class Patched:
    """Scaled windows, 0 where masked: before the first observed step. observed: patches that hold an observed step.

    loc, scale: of each patch in the data's units, so that a forecast is its answer * scale + loc.
    """

    patches: Float32[np.ndarray, "window token patch"]
    masks: Bool[np.ndarray, "window token patch"]
    observed: Bool[np.ndarray, "window token"]
    loc: Float[np.ndarray, "window token"]
    scale: Float[np.ndarray, "window token"]


def frequency(freq: str) -> int:
    """Frequency id of a pandas frequency, its multiple and anchor ignored; 0, the package's default, without one."""
    from pandas.tseries.frequencies import to_offset

    if not freq:
        return 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # files may have the old names
        name = to_offset(freq).name.partition("-")[0]
    return FREQUENCIES.get(name.removeprefix("B")[:1], 0)  # "MS", "ME", "BME" are months, "ms" and "min" are not


def filled(context: Float[np.ndarray, "window context"], size: int, longest: int) -> Steps:
    """The last `longest` steps, padded on the left to whole patches of `size`.

    As in Google's package: gaps are interpolated, over the whole context, and what is missing at the end is the last
    observed step; what comes before the first is masked.
    """
    missing = np.isnan(context)
    masked = np.logical_and.accumulate(missing, axis=1)
    values, at = np.where(masked, 0.0, context).astype(np.float64), np.arange(context.shape[1])
    for row in np.flatnonzero((missing & ~masked).any(axis=1)):
        known = ~missing[row]
        values[row] = np.where(masked[row], 0.0, np.interp(at, at[known], values[row, known]))
    values, masked, missing = (one[:, -longest:] for one in (values, masked, missing))
    left = ((0, 0), (-values.shape[1] % size, 0))
    return Steps(
        np.pad(values, left), np.pad(masked, left, constant_values=True), np.pad(missing, left, constant_values=True)
    )


def first_patch(steps: Steps, size: int, tolerance: float) -> Patched:
    """TimesFM 2.0: all patches scaled by the first one with ENOUGH observed steps, else by the last one.

    A scale below `tolerance` is that.
    """
    patches, masks, observed = _patches(steps, size)
    enough = (~masks).sum(axis=2) >= ENOUGH
    chosen = np.where(enough.any(axis=1), enough.argmax(axis=1), patches.shape[1] - 1)
    rows = np.arange(len(patches))
    _, loc, scale = _moments(patches[rows, chosen], masks[rows, chosen])
    loc, scale = loc[:, None], np.maximum(scale, tolerance)[:, None]
    scaled = _kept((patches - loc[:, :, None]) / scale[:, :, None], masks)
    shape = observed.shape
    return Patched(scaled, masks, observed, np.broadcast_to(loc, shape), np.broadcast_to(scale, shape))


def running(steps: Steps, size: int) -> Patched:
    """TimesFM 2.5: the window scaled as a whole, then each patch by all steps up to its end.

    The package takes the first of the two over zeros of padding too; only where a scale is near TOLERANCE does that
    change more than rounding.
    """
    patches, masks, observed = _patches(steps, size)
    windows, tokens, _ = patches.shape
    count, centre, spread = _moments(patches.reshape(windows, -1), masks.reshape(windows, -1))
    spread = spread * np.sqrt(count / np.maximum(count - 1, 1))  # n - 1 as in the package
    values = (patches - centre[:, None, None]) / _safe(spread)[:, None, None]
    values = np.where(masks, 0.0, values)
    loc, scale = np.zeros((windows, tokens)), np.zeros((windows, tokens))
    seen, mean, deviation = np.zeros(windows), np.zeros(windows), np.zeros(windows)
    for token in range(tokens):
        more, its_mean, its_deviation = _moments(values[:, token], masks[:, token])
        total = np.maximum(seen + more, 1)
        joint = (seen * mean + more * its_mean) / total
        squares = seen * (deviation**2 + (mean - joint) ** 2) + more * (its_deviation**2 + (its_mean - joint) ** 2)
        seen, mean, deviation = seen + more, joint, np.sqrt(squares / total)
        loc[:, token], scale[:, token] = mean, deviation
    scaled = _kept((values - loc[:, :, None]) / _safe(scale)[:, :, None], masks)
    return Patched(scaled, masks, observed, centre[:, None] + spread[:, None] * loc, spread[:, None] * scale)


def _patches(steps: Steps, size: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Values and masks [W, T, patch], and which patches hold an observed step [W, T]."""
    values, masks, missing = (one.reshape(len(one), -1, size) for one in (steps.values, steps.masked, steps.missing))
    return values, masks, np.asarray((~missing).any(axis=2))


def _moments(values: np.ndarray, masks: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Number, mean and standard deviation (over n) of what is not masked, [W] each; 0 where all is."""
    count = (~masks).sum(axis=1)
    some = np.maximum(count, 1)
    mean = np.where(masks, 0.0, values).sum(axis=1) / some
    squares = np.where(masks, 0.0, (values - mean[:, None]) ** 2).sum(axis=1)
    return count, mean, np.sqrt(squares / some)


def _safe(scale: np.ndarray) -> np.ndarray:
    return np.where(scale < TOLERANCE, 1.0, scale)


def _kept(scaled: np.ndarray, masks: np.ndarray) -> np.ndarray:
    kept: np.ndarray = np.where(masks, 0.0, np.clip(scaled, -LARGEST, LARGEST)).astype(np.float32)
    return kept

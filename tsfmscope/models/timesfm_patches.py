"""Windows as TimesFM reads them: whole patches without gaps, the loc and scale of each, and frequency ids."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Float32

# Google's freq_map: 0 for daily and finer, 1 for weekly and monthly, 2 for coarser.
FREQUENCIES = {"W": 1, "M": 1, "Q": 2, "Y": 2}
# Fewest unmasked steps of the patch from which 2.0 takes location and scale.
ENOUGH = 3
# A smaller scale is replaced by 1, in 2.5 and in the loss of both versions.
TOLERANCE = 1e-6
# Largest scaled step, so that float32 squares of what the network computes from it do not overflow.
LARGEST = 2.0**40


@dataclass(frozen=True, eq=False)
class Steps:
    """Contexts as whole patches, in float64 and without gaps.

    masked: steps before the first observed one; their values are 0. missing: steps that are not observed.
    """

    values: Float[np.ndarray, "window step"]
    masked: Bool[np.ndarray, "window step"]
    missing: Bool[np.ndarray, "window step"]


@dataclass(frozen=True, eq=False)
class Patched:
    """Scaled windows, 0 where masked, which is before the first observed step.

    observed: patches that contain an observed step. loc, scale: of each patch, in the data's units. A
    forecast is the network's output * scale + loc.
    """

    patches: Float32[np.ndarray, "window token patch"]
    masks: Bool[np.ndarray, "window token patch"]
    observed: Bool[np.ndarray, "window token"]
    loc: Float[np.ndarray, "window token"]
    scale: Float[np.ndarray, "window token"]


def frequency(freq: str) -> int:
    """Return the frequency id of a pandas frequency; its multiple and anchor are ignored.

    Without a frequency it is 0, the package's default.
    """
    from pandas.tseries.frequencies import to_offset

    if not freq:
        return 0
    with warnings.catch_warnings():
        # Files may have the old names.
        warnings.simplefilter("ignore", FutureWarning)
        name = to_offset(freq).name.partition("-")[0]
    # "MS", "ME", "BME" are months; "ms" and "min" are not.
    return FREQUENCIES.get(name.removeprefix("B")[:1], 0)


def pad_to_patches(context: Float[np.ndarray, "window context"], size: int, longest: int) -> Steps:
    """Return the last `longest` steps, padded on the left to whole patches of `size`.

    As in Google's package, gaps are interpolated over the whole context, missing steps at the end repeat the
    last observed one, and steps before the first observed one are masked.
    """
    missing = np.isnan(context)
    masked = np.logical_and.accumulate(missing, axis=1)
    values, at = np.where(masked, 0.0, context).astype(np.float64), np.arange(context.shape[1])
    for row in np.flatnonzero((missing & ~masked).any(axis=1)):
        known = ~missing[row]
        values[row] = np.where(masked[row], 0.0, np.interp(at, at[known], values[row, known]))
    values, masked, missing = (array[:, -longest:] for array in (values, masked, missing))
    left = ((0, 0), (-values.shape[1] % size, 0))
    return Steps(
        np.pad(values, left), np.pad(masked, left, constant_values=True), np.pad(missing, left, constant_values=True)
    )


def scale_by_first_patch(steps: Steps, size: int, tolerance: float) -> Patched:
    """Scale all patches by the first one with ENOUGH unmasked steps, as TimesFM 2.0 does.

    Without such a patch the last one is used. A scale below `tolerance` is replaced by `tolerance`.
    """
    patches, masks, observed = _patches(steps, size)
    enough = (~masks).sum(axis=2) >= ENOUGH
    patch_ids = np.where(enough.any(axis=1), enough.argmax(axis=1), patches.shape[1] - 1)
    rows = np.arange(len(patches))
    _, loc, scale = _moments(patches[rows, patch_ids], masks[rows, patch_ids])
    loc, scale = loc[:, None], np.maximum(scale, tolerance)[:, None]
    scaled = _keep_defined((patches - loc[:, :, None]) / scale[:, :, None], masks)
    shape = observed.shape
    return Patched(scaled, masks, observed, np.broadcast_to(loc, shape), np.broadcast_to(scale, shape))


def scale_running(steps: Steps, size: int) -> Patched:
    """Scale the window as a whole, then each patch by all steps up to its end, as TimesFM 2.5 does.

    The package computes the scale of the whole window over zeros of padding too. That changes more than
    rounding only where a scale is near TOLERANCE.
    """
    patches, masks, observed = _patches(steps, size)
    windows, tokens, _ = patches.shape
    count, centre, spread = _moments(patches.reshape(windows, -1), masks.reshape(windows, -1))
    # Over n - 1, as in the package.
    spread = spread * np.sqrt(count / np.maximum(count - 1, 1))
    values = (patches - centre[:, None, None]) / _safe(spread)[:, None, None]
    values = np.where(masks, 0.0, values)
    loc, scale = np.zeros((windows, tokens)), np.zeros((windows, tokens))
    n_seen, mean, deviation = np.zeros(windows), np.zeros(windows), np.zeros(windows)
    for token in range(tokens):
        more, its_mean, its_deviation = _moments(values[:, token], masks[:, token])
        total = np.maximum(n_seen + more, 1)
        joint = (n_seen * mean + more * its_mean) / total
        squares = n_seen * (deviation**2 + (mean - joint) ** 2) + more * (its_deviation**2 + (its_mean - joint) ** 2)
        n_seen, mean, deviation = n_seen + more, joint, np.sqrt(squares / total)
        loc[:, token], scale[:, token] = mean, deviation
    scaled = _keep_defined((values - loc[:, :, None]) / _safe(scale)[:, :, None], masks)
    return Patched(scaled, masks, observed, centre[:, None] + spread[:, None] * loc, spread[:, None] * scale)


def _patches(steps: Steps, size: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return values and masks [W, T, patch], and which patches contain an observed step [W, T]."""
    values, masks, missing = (
        array.reshape(len(array), -1, size) for array in (steps.values, steps.masked, steps.missing)
    )
    return values, masks, np.asarray((~missing).any(axis=2))


def _moments(values: np.ndarray, masks: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return number, mean and standard deviation (over n) of unmasked values, [W] each, 0 without any."""
    count = (~masks).sum(axis=1)
    divisor = np.maximum(count, 1)
    mean = np.where(masks, 0.0, values).sum(axis=1) / divisor
    squares = np.where(masks, 0.0, (values - mean[:, None]) ** 2).sum(axis=1)
    return count, mean, np.sqrt(squares / divisor)


def _safe(scale: np.ndarray) -> np.ndarray:
    return np.where(scale < TOLERANCE, 1.0, scale)


def _keep_defined(scaled: np.ndarray, masks: np.ndarray) -> np.ndarray:
    clipped: np.ndarray = np.where(masks, 0.0, np.clip(scaled, -LARGEST, LARGEST)).astype(np.float32)
    return clipped

"""Gaussian noise on contexts, for the noise study (Shelim et al. 2025, Fig. 6)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from tsfmscope.series.types import Series, Windows

# Largest float32; noisy values are clipped to it.
LARGEST = float(np.finfo(np.float32).max)


def with_noise(windows: Windows, series: Sequence[Series], *, noise: float, seed: int) -> Windows:
    """Add N(0, (noise * s.d. of the series)^2) to the observed context steps of windows; futures stay clean.

    The s.d. is computed over all observed steps of the window's series. A window's noise depends only on
    (seed, data set, series, origin), never on the batch. It is drawn backwards from the origin, so a step
    gets the same noise in a shorter context of the same origin.

    Raises:
        ValueError: `noise` is negative or not finite, or a window's series is not in `series`.
    """
    if not (np.isfinite(noise) and noise >= 0):
        raise ValueError(f"noise: expected a finite number of at least 0, got {noise}")
    if noise == 0:
        return windows
    series_by_name = {item.series: item for item in series}
    missing = sorted(set(windows.series) - set(series_by_name))
    if missing:
        raise ValueError(f"noise: expected every window's series, {missing[0]!r} of {windows.dataset!r} is missing")
    deviations = {
        name: float(np.nanstd(series_by_name[name].values.astype(np.float64))) for name in set(windows.series)
    }
    context = windows.context.astype(np.float64)
    for row, (name, origin) in enumerate(zip(windows.series, windows.origin.tolist(), strict=True)):
        digest = hashlib.sha256(json.dumps([seed, windows.dataset, name, origin]).encode()).digest()
        rng = np.random.default_rng(int.from_bytes(digest[:16], "little"))
        white = np.asarray(rng.standard_normal(context.shape[1]))
        context[row] += noise * deviations[name] * white[::-1]
    return replace(windows, context=np.clip(context, -LARGEST, LARGEST).astype(windows.context.dtype))

"""Signals that embeddings are probed with, and Gaussian noise on contexts (Shelim et al. 2025, Fig. 6).

The signals are sinusoids, exponentials, white noise and KernelSynth, or one of them alone. Source:
Yu et al. 2026, section 2 ("sinusoids, exponential functions, and white noise"), section 4 (a constant signal)
and Appendix H (a sinusoidal wave, i.i.d. N(0, 1)). Periods and rates are our choice: the paper prints none.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from tsfmscope.series.synthetic.kernelsynth import draw_many
from tsfmscope.series.types import Series, Windows

SIGNALS = ("corpus", "sinusoid", "noise", "constant")
# Number of series of each of the corpus' four kinds.
EACH = 16
# Period of the single sinusoid, in steps.
PERIOD = 64.0
# Range of the periods of the corpus' sinusoids, in steps, log-uniform.
PERIODS = (4.0, 512.0)
# Range of the rates of the corpus' exponentials, in e-foldings over the whole series, uniform.
RATES = (-4.0, 4.0)


def draw_signal(dataset: str, signal: str, seed: int, length: int = 1024) -> list[Series]:
    """Return the series of one signal, [length] each: 4 x EACH for the corpus, one for each other signal.

    The sinusoid is sin(2 pi t / PERIOD), noise is N(0, 1), the constant is 0.

    Raises:
        ValueError: `signal` is none of SIGNALS.
    """
    if signal not in SIGNALS:
        raise ValueError(f"signal: expected one of {', '.join(SIGNALS)}, got {signal!r}")
    rng, steps = np.random.default_rng([seed, SIGNALS.index(signal)]), np.arange(length, dtype=np.float64)
    # Drawn for every signal, so that the corpus' random numbers are those that follow.
    noise = rng.standard_normal(length)
    single = {"sinusoid": np.sin(2 * np.pi * steps / PERIOD), "noise": noise, "constant": np.zeros(length)}
    signals: dict[str, np.ndarray] = {signal: single[signal]} if signal in single else {}
    if signal == "corpus":
        for n in range(EACH):
            period = np.exp(rng.uniform(*np.log(PERIODS)))
            signals[f"sinusoid-{n}"] = np.sin(2 * np.pi * (steps / period + rng.random()))
            signals[f"exponential-{n}"] = np.exp(rng.uniform(*RATES) * steps / length)
            signals[f"noise-{n}"] = rng.standard_normal(length)
        signals |= {f"kernelsynth-{n}": draw.values for n, draw in enumerate(draw_many(EACH, seed=seed, length=length))}
    # Part of the fingerprints of stored rows: the module's name when these were first stored.
    source = f"tasks.series.signals, {signal}"
    return [
        Series(dataset, name, values.astype(np.float32), domain="signals", provenance=source)
        for name, values in signals.items()
    ]


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

"""Signals that embeddings are probed with: sinusoids, exponentials, white noise and KernelSynth, or a single one.

rank_structure.md, section 2 ("sinusoids, exponential functions, and white noise"; section 4: a constant signal) and
Appendix H (a sinusoidal wave, i.i.d. N(0, 1)). Periods and rates are our choice: the paper prints none.
"""

from __future__ import annotations

import numpy as np

from tasks.series.kernelsynth import draw_many
from tasks.series.types import Series

SIGNALS = ("corpus", "sinusoid", "noise", "constant")
EACH = 16  # series of each of the corpus' four kinds
PERIOD = 64.0  # steps, of the single sinusoid
PERIODS = (4.0, 512.0)  # steps: range of the corpus' sinusoids, log-uniform
RATES = (-4.0, 4.0)  # e-foldings over the whole series: range of its exponentials, uniform


def draw_signal(dataset: str, signal: str, seed: int, length: int = 1024) -> list[Series]:
    """The series of one signal, [length] each: 4 x EACH of the corpus, one of the others.

    The sinusoid is sin(2 pi t / PERIOD), noise is N(0, 1), the constant is 0. Raises ValueError for a name that is none
    of SIGNALS.
    """
    if signal not in SIGNALS:
        raise ValueError(f"signal: expected one of {', '.join(SIGNALS)}, got {signal!r}")
    rng, steps = np.random.default_rng([seed, SIGNALS.index(signal)]), np.arange(length, dtype=np.float64)
    alone = {
        "sinusoid": np.sin(2 * np.pi * steps / PERIOD),
        "noise": rng.standard_normal(length),
        "constant": np.zeros(length),
    }
    found = {signal: alone[signal]} if signal in alone else _corpus(rng, steps, seed)
    return [
        Series(dataset, name, values.astype(np.float32), domain="signals", provenance=f"tasks.series.signals, {signal}")
        for name, values in found.items()
    ]


def _corpus(rng: np.random.Generator, steps: np.ndarray, seed: int) -> dict[str, np.ndarray]:
    found: dict[str, np.ndarray] = {}
    for n in range(EACH):
        period = np.exp(rng.uniform(*np.log(PERIODS)))
        found[f"sinusoid-{n}"] = np.sin(2 * np.pi * (steps / period + rng.random()))
        found[f"exponential-{n}"] = np.exp(rng.uniform(*RATES) * steps / len(steps))
        found[f"noise-{n}"] = rng.standard_normal(len(steps))
    drawn = draw_many(EACH, seed=seed, length=len(steps))
    return found | {f"kernelsynth-{n}": one.values for n, one in enumerate(drawn)}

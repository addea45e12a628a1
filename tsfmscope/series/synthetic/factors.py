"""Random series whose factors are known, for probes of hidden states.

Three of four series are sums of components in units of the noisiest possible one:

    x(t) = A √2 sin(2π ((t - L + 1) / P + φ)) + T (t / (L - 1) - 1/2) + h [t ≥ c L] + σ ε(t)

Each fourth series is drawn from a Gaussian process with one kernel of KernelSynth (Ansari et al. 2024). The components
are those that Aionoscope (Chemeris et al. 2026, arXiv 2607.00956) varies; the ranges are ours.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from tsfmscope.series.synthetic.kernels import bank, series_seeds
from tsfmscope.series.synthetic.kernelsynth import draw

# Ranges: period P in steps, standard deviations A of the season and σ of the noise (log-uniform), rise T of the line
# over the window, size |h| of the level shift, and its position c in windows (uniform).
PERIOD, SEASON, NOISE = (4.0, 128.0), (0.25, 4.0), (0.05, 1.0)
RISE, SHIFT, POSITION = (-4.0, 4.0), (1.0, 4.0), (0.2, 0.8)
# One series in so many is drawn from a kernel.
KERNELS = 4


class FactorSeries(NamedTuple):
    """Series with known factors.

    values: [N, L]. factors: name -> [N, k], NaN where a series does not have the factor. classes: name -> [N], the
    class of each series, None where it has none.
    """

    values: Float[np.ndarray, "series step"]
    factors: dict[str, np.ndarray]
    classes: dict[str, np.ndarray]


def draw_factors(count: int, length: int, *, seed: int) -> FactorSeries:
    """Draw `count` series of `length` steps with their factors.

    Factors do not depend on the unit of a series. period: log2 of P. phase: cos and sin of 2πφ, at the last step.
    season, noise: log2 of A and of σ over the standard deviation of the series. trend, shift: T and h over it.
    Classes are changepoint (yes, no) and kernel, the class of the kernel's one leaf in scikit-learn.
    """
    generator = np.random.default_rng([seed, 48])
    at = np.arange(count)
    is_kernel = at % KERNELS == KERNELS - 1

    def between(limits: tuple[float, float]) -> np.ndarray:
        return generator.uniform(*limits, count)

    def log_between(limits: tuple[float, float]) -> np.ndarray:
        return np.asarray(np.exp(between((math.log(limits[0]), math.log(limits[1])))))

    period, season, noise = log_between(PERIOD), log_between(SEASON), log_between(NOISE)
    phase, rise, position = between((0, 1)), between(RISE), between(POSITION)
    has_shift = generator.random(count) < 0.5
    shift = np.where(has_shift, between(SHIFT) * generator.choice([-1, 1], count), 0.0)
    steps = np.arange(length)
    turns = (steps - length + 1) / period[:, None] + phase[:, None]
    values = season[:, None] * np.sqrt(2) * np.sin(2 * np.pi * turns)
    values += rise[:, None] * (steps / (length - 1) - 0.5) + shift[:, None] * (steps >= position[:, None] * length)
    values += noise[:, None] * generator.standard_normal((count, length))
    kernels = np.full(count, None, dtype=object)
    leaves = [leaf for leaf in bank(length) if leaf.name != "ConstantKernel"]
    names = sorted({leaf.name for leaf in leaves})
    for index, own in zip(at[is_kernel].tolist(), series_seeds(seed, at[is_kernel].tolist(), "factors"), strict=True):
        # Classes are equally frequent.
        kernels[index] = names[index // KERNELS % len(names)]
        leaf = generator.choice(np.array([n for n, leaf in enumerate(leaves) if leaf.name == kernels[index]]))
        values[index] = draw(leaves[leaf].kernel(), own, length)
    spread = values.std(axis=1)
    factors = {
        "period": np.log2(period)[:, None],
        "phase": np.stack([np.cos(2 * np.pi * phase), np.sin(2 * np.pi * phase)], axis=1),
        "season": np.log2(season / spread)[:, None], "trend": (rise / spread)[:, None],
        "noise": np.log2(noise / spread)[:, None], "shift": (shift / spread)[:, None],
    }  # fmt: skip
    for name, factor in factors.items():
        factor[is_kernel | ((name == "shift") & ~has_shift)] = np.nan
    changepoint = np.where(has_shift, "yes", "no").astype(object)
    changepoint[is_kernel] = None
    return FactorSeries(values, factors, {"changepoint": changepoint, "kernel": kernels})

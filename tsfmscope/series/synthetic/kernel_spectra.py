"""Spectra of stationary kernels: k(d) = sum_f weight_f cos(2 pi f d) for every |d| <= 1, weights positive.

A Gaussian process with such a kernel is a sum of cosines and sines with independent Gaussian amplitudes. No
matrix is factorised, so no factorisation can fail. A product of kernels is the convolution of their lines.
The errors of the factors only add up, since no kernel here exceeds 1 in absolute value. The lines come from
these sources:

- ExpSineSquared: its Fourier series, whose coefficients are scaled Bessel functions (Abramowitz & Stegun
  9.6.34);
- RBF: the Fourier series of its periodic sum, whose period is so long that on [-1, 1] the neighbours add
  nothing;
- RationalQuadratic: a mixture of RBFs over Gamma-distributed precisions (Rasmussen & Williams 2006, eq.
  4.20).

Smooth kernels and slow products are thinned by Gauss quadrature (Golub & Welsch 1969): on [-1, 1], a few
lines then replace hundreds.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from jaxtyping import Float64
from numba import njit

from tsfmscope.errors import DataError
from tsfmscope.series.synthetic.kernels import Leaf

# Largest error of a leaf on [-1, 1], and of each thinning, relative to the kernel's largest value,
# which is 1.
LEAF_ERROR = 1e-8
# Total weight that a product may lose. With five leaves, the sum of all errors stays below 3e-7.
PRODUCT_ERROR = 5e-8
# Number of standard deviations at which a Gaussian is cut: exp(-6.4^2 / 2) = 1.3e-9.
_TAIL = 6.4
# Largest number of lines of one leaf; RBF(2e-5) has about 102,000.
_MOST_LINES = 200_000
# Highest frequency, in cycles over the window, up to which a product's lines are thinned (twice as
# high for a leaf). The cost of the quadrature grows with its square.
_SLOW = 60.0
# Difference, in cycles, up to which two lines count as equal (rounding).
_SAME = 1e-10
# Step of the grid on which a leaf is compared with scikit-learn's kernel.
_LAG = 1.0 / 1024


class Spectrum(NamedTuple):
    """Lines of a kernel: frequencies >= 0 in cycles over the window [0, 1], and variances.

    The variances sum to k(0) = 1, up to the weight that was cut.
    """

    frequency: Float64[np.ndarray, " line"]
    weight: Float64[np.ndarray, " line"]

    def at(self, lag: Float64[np.ndarray, " lag"]) -> Float64[np.ndarray, " lag"]:
        """Evaluate the kernel at lags in [-1, 1]."""
        return np.asarray(np.cos(2 * np.pi * np.multiply.outer(lag, self.frequency)) @ self.weight)


CONSTANT = Spectrum(np.zeros(1), np.ones(1))


# About 50 MB for random compositions.
@lru_cache(maxsize=8192)
def spectrum(leaves: tuple[Leaf, ...]) -> Spectrum:
    """Return the lines of a product of stationary leaves.

    The error is at most 3e-7 of the kernel's largest value for up to five leaves. Sort the leaves by `order`
    first: then products with the same beginning share cached results, and the slow leaves are thinned before
    they are combined with the fast ones.

    Raises:
        DataError: a leaf needs more than 200,000 lines or misses its kernel, such as RBF(1e-6), or an
            argument is not positive.
    """
    if not leaves:
        return CONSTANT
    if len(leaves) == 1:
        return _leaf(leaves[0])
    first, last = spectrum(leaves[:-1]), spectrum(leaves[-1:])
    lines = _merge(*_convolve(first.frequency, first.weight, last.frequency, last.weight, PRODUCT_ERROR))
    highest = lines.frequency[-1]
    return _thin(lines, LEAF_ERROR) if highest < _SLOW and len(lines.weight) > 2 * highest + 30 else lines


def order(leaf: Leaf) -> tuple[int, float]:
    """Return a sort key that orders leaves from slow to fast."""
    if leaf.name == "ExpSineSquared":
        return 1, -leaf.values[1]
    return 0, -leaf.values[-1]


def _leaf(leaf: Leaf) -> Spectrum:
    makers: dict[str, Callable[..., Spectrum]] = {
        "ExpSineSquared": _exp_sine_squared,
        "RBF": _rbf,
        "RationalQuadratic": _rational_quadratic,
    }
    if min(leaf.values) <= 0:
        raise DataError(f"kernel {leaf.expression}: expected arguments above 0")
    lines = makers[leaf.name](*leaf.values)
    lags = np.arange(0.0, 1.0 + _LAG, _LAG)
    exact = leaf.kernel()(np.zeros((1, 1)), lags[:, None])[0]
    # In parts, because a leaf may have many lines.
    parts = (np.array_split(values, 1 + len(values) // 4096) for values in lines)
    approximation = sum(Spectrum(f, w).at(lags) for f, w in zip(*parts, strict=True))
    error = np.abs(approximation - exact).max()
    if not error <= 3 * LEAF_ERROR:
        raise DataError(
            f"kernel {leaf.expression}: its lines have an error of {error:.1e}, expected at most "
            f"{3 * LEAF_ERROR:.0e}; give longer length scales or periods"
        )
    return lines


def _exp_sine_squared(length_scale: float, periodicity: float) -> Spectrum:
    """Return the lines of ExpSineSquared.

    exp(z (cos x - 1)) = sum_n e^-z I_n(z) cos(n x), with z = 1 / length_scale^2 and x = 2 pi d / periodicity,
    the sum over all integers n.
    """
    from scipy.special import ive

    z = length_scale**-2
    orders = np.arange(_check_lines(12 + 8 * math.sqrt(z)))
    weight = ive(orders, z) * np.where(orders > 0, 2, 1)
    return _merge(orders / periodicity, weight, LEAF_ERROR)


def _rbf(length_scale: float) -> Spectrum:
    return _thin(_gaussians(np.array([1 / length_scale]), np.ones(1)), LEAF_ERROR)


def _rational_quadratic(alpha: float, length_scale: float) -> Spectrum:
    """Return the lines of RationalQuadratic as a mixture of Gaussians, integrated by the trapezoid rule.

    (1 + d^2 / (2 alpha l^2))^-alpha = E exp(-t d^2 / (2 l^2)), with t ~ Gamma(alpha, rate alpha). In log t
    the rule converges exponentially. Precisions below 1e-10 are treated as 0, which gives a constant.
    """
    from scipy.special import gammaln

    step = min(0.2, 0.6 / math.sqrt(alpha))
    logs = np.arange(math.log(1e-10), math.log(1 + 60 / alpha) + 1, step)
    weight = step * np.exp(alpha * (math.log(alpha) + logs) - alpha * np.exp(logs) - gammaln(alpha))
    is_heavy = weight > 1e-14
    lines = _gaussians(np.exp(logs[is_heavy] / 2) / length_scale, weight[is_heavy])
    remainder = max(0.0, 1.0 - weight[is_heavy].sum())
    return _thin(_merge(np.append(lines.frequency, 0.0), np.append(lines.weight, remainder)), LEAF_ERROR)


def _gaussians(sharpness: np.ndarray, weight: np.ndarray) -> Spectrum:
    """Return the lines of sum_i weight_i exp(-(sharpness_i d)^2 / 2).

    Each Gaussian gets a period of 2, 4, 8, ..., so that many frequencies coincide.
    """
    frequencies, weights = [], []
    for s, w in zip(sharpness.tolist(), weight.tolist(), strict=True):
        period = 2.0 ** max(1, math.ceil(math.log2(1 + _TAIL / s)))
        frequency = np.arange(_check_lines(_TAIL * s / (2 * math.pi) * period) + 1) / period
        density = np.exp(-2 * (np.pi * frequency / s) ** 2) * math.sqrt(2 * math.pi) / (s * period)
        frequencies.append(frequency)
        weights.append(w * density * np.where(frequency > 0, 2, 1))
    return _merge(np.concatenate(frequencies), np.concatenate(weights))


def _check_lines(lines: float) -> int:
    """Return the number of lines as an integer. Raises DataError above _MOST_LINES."""
    if lines > _MOST_LINES:
        raise DataError(f"a kernel has {lines:.1e} lines, expected at most {_MOST_LINES}; give a longer length scale")
    return math.ceil(lines)


def _merge(frequency: np.ndarray, weight: np.ndarray, error: float = 0.0) -> Spectrum:
    """Sort lines by frequency and merge equal frequencies.

    The weakest lines are dropped as long as their weights sum to at most `error`.
    """
    ascending = np.argsort(frequency)
    frequency, weight = frequency[ascending], weight[ascending]
    starts = np.flatnonzero(np.diff(frequency, prepend=-1.0) > _SAME)
    frequency, weight = frequency[starts], np.add.reduceat(weight, starts)
    if not error:
        return Spectrum(frequency, weight)
    weakest = np.argsort(weight, kind="stable")
    heaviest = np.sort(weakest[np.cumsum(weight[weakest]) > error])
    return Spectrum(frequency[heaviest], weight[heaviest])


def _thin(lines: Spectrum, error: float) -> Spectrum:
    """Return the Gauss rule of fewest nodes whose kernel is within `error` on [-1, 1], else the given lines.

    cos(2 pi f d) is an entire function of f^2, so a rule for the measure of f^2 converges faster than
    exponentially.
    """
    from scipy.linalg import eigh_tridiagonal

    highest = lines.frequency[-1]
    if highest > 2 * _SLOW:
        return lines
    # More than four lags per cycle of the highest frequency that the rule can miss.
    lags = np.linspace(0.0, 1.0, 65 + int(4 * highest))
    exact = lines.at(lags)
    diagonal, off = _lanczos(lines.frequency**2, lines.weight, int(2 * highest) + 30)
    low, high, best = 1, len(diagonal) + 1, lines
    while low < high:
        nodes = (low + high) // 2
        squares, vectors = eigh_tridiagonal(diagonal[:nodes], off[: nodes - 1])
        rule = Spectrum(np.sqrt(np.maximum(squares, 0.0)), lines.weight.sum() * vectors[0] ** 2)
        if np.abs(rule.at(lags) - exact).max() <= error:
            high, best = nodes, rule
        else:
            low = nodes + 1
    return best


def _lanczos(atoms: np.ndarray, weight: np.ndarray, max_steps: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the diagonal and off-diagonal of the Jacobi matrix of a discrete measure.

    Each vector is orthogonalised twice against all earlier ones.
    """
    steps = min(max_steps, len(atoms))
    basis = np.zeros((steps, len(atoms)))
    basis[0] = np.sqrt(weight / weight.sum())
    diagonal, off = [], []
    for step in range(steps):
        vector = atoms * basis[step]
        diagonal.append(float(basis[step] @ vector))
        for _ in range(2):
            vector -= basis[: step + 1].T @ (basis[: step + 1] @ vector)
        norm = float(np.linalg.norm(vector))
        if step + 1 == steps or norm <= 1e-14 * atoms[-1]:
            break
        off.append(norm)
        basis[step + 1] = vector / norm
    return np.array(diagonal), np.array(off)


@njit(cache=True)
def _convolve(  # type: ignore[no-untyped-def]
    one_frequency, one_weight, other_frequency, other_weight, error
):  # pragma: no cover - compiled
    """Return the lines of a product of two kernels, without the weakest lines.

    a cos x * b cos y = a b / 2 (cos(x + y) + cos(x - y)). Lines are binned by powers of two of their weight;
    whole bins of the weakest lines are dropped while their weights sum to at most `error`.
    """
    total, count = np.zeros(128), np.zeros(128, np.int64)
    for i in range(len(one_weight)):
        for j in range(len(other_weight)):
            weight = one_weight[i] * other_weight[j]
            lines = 2 if one_frequency[i] != 0 and other_frequency[j] != 0 else 1
            bin_ = max(0, min(127, 1 - math.frexp(weight / lines)[1]))
            total[bin_] += weight
            count[bin_] += lines
    last, lost = 127, 0.0
    while last > 0 and lost + total[last] <= error:
        lost += total[last]
        last -= 1
    size = count[: last + 1].sum()
    frequency, weights = np.empty(size), np.empty(size)
    at = 0
    for i in range(len(one_weight)):
        for j in range(len(other_weight)):
            weight = one_weight[i] * other_weight[j]
            lines = 2 if one_frequency[i] != 0 and other_frequency[j] != 0 else 1
            if max(0, min(127, 1 - math.frexp(weight / lines)[1])) > last:
                continue
            frequency[at], weights[at] = one_frequency[i] + other_frequency[j], weight / lines
            at += 1
            if lines == 2:
                frequency[at], weights[at] = abs(one_frequency[i] - other_frequency[j]), weight / lines
                at += 1
    return frequency, weights

"""Draws of Gaussian processes whose kernels are sums of products of leaves, without a covariance matrix.

On the grid x = linspace(0, 1, L), each product of leaves of the multiplied-out kernel is one of two things:

- with a White leaf: a diagonal, because the stationary leaves are 1 at lag 0;
- else a polynomial sum_k c_k (x x')^k, from the DotProduct and Constant leaves, times a stationary kernel,
  which `spectrum` gives as lines. Its draws are sum_k x^k sqrt(c_k) s_k(x), where the s_k are independent
  sums of random waves.

Lines of a stationary kernel: k(d) = sum_f weight_f cos(2 pi f d) for every |d| <= 1, weights positive. A process
with such a kernel is a sum of cosines and sines with independent Gaussian amplitudes. No matrix is factorised, so
no factorisation can fail. A product of kernels is the convolution of their lines. The errors of the factors only
add up, since no kernel here exceeds 1 in absolute value. The lines come from these sources:

- ExpSineSquared: its Fourier series, whose coefficients are scaled Bessel functions (Abramowitz & Stegun
  9.6.34);
- RBF: the Fourier series of its periodic sum, whose period is so long that on [-1, 1] the neighbours add
  nothing;
- RationalQuadratic: a mixture of RBFs over Gamma-distributed precisions (Rasmussen & Williams 2006, eq.
  4.20).

Smooth kernels and slow products are thinned by Gauss quadrature (Golub & Welsch 1969): on [-1, 1], a few
lines then replace hundreds.

The waves of a series are added up by a non-uniform fast Fourier transform (Dutt & Rokhlin 1993). Each line is
spread over a few neighbours on a regular grid of frequencies with the "exponential of semicircle" window
(Barnett et al. 2019). One real inverse transform gives the steps, which are then divided by the window's own
transform. Lines at frequency 0 do not pass through the transform, so constants, straight lines and powers are
exact.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from jaxtyping import Float64
from numba import njit

from tsfmscope.errors import DataError
from tsfmscope.series.synthetic.kernels import VALUES, Leaf, Streams

# Largest error of a leaf on [-1, 1], and of each thinning, where the kernel's largest value is 1.
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


# Number of grid neighbours that a line is spread over. With a grid twice as fine as needed, a
# wave's error is about 10^(1 - WIDTH).
WIDTH = 9
# Shape parameter of the window (Barnett et al. 2019, section 3).
_BETA = 2.3 * WIDTH
# Degree of the polynomials that replace the window's square roots and exponentials.
_DEGREE = 12
# Steps of all series of one block, so that the block's grids fit in the cache.
_STEPS_AT_ONCE = 2**17


class Term(NamedTuple):
    """One product of leaves.

    polynomial: coefficients c_k of (x x')^k; leaves: the stationary leaves; white: whether the product is a
    diagonal.
    """

    polynomial: tuple[float, ...]
    leaves: tuple[Leaf, ...]
    white: bool

    def diagonal(self, grid: Float64[np.ndarray, " step"]) -> Float64[np.ndarray, " step"]:
        """Return the variance at each step."""
        return np.asarray(np.polynomial.polynomial.polyval(grid**2, self.polynomial))


@lru_cache(maxsize=65_536)
def term(leaves: tuple[Leaf, ...]) -> Term:
    """Split a product of leaves into polynomial, stationary leaves and white part."""
    polynomial, stationary, white = np.ones(1), [], False
    for leaf in leaves:
        if leaf.name == "DotProduct":
            polynomial = np.convolve(polynomial, (leaf.values[0] ** 2, 1.0))
        elif leaf.name in ("ConstantKernel", "WhiteKernel"):
            polynomial = polynomial * leaf.values[0]
            white = white or leaf.name == "WhiteKernel"
        else:
            stationary.append(leaf)
    return Term(tuple(polynomial.tolist()), () if white else tuple(sorted(stationary, key=order)), white)


def synthesise(
    kernels: Sequence[Sequence[tuple[Leaf, ...]]], seeds: Sequence[int], length: int
) -> Float64[np.ndarray, "series step"]:
    """Draw one series per kernel and seed on linspace(0, 1, length), [N, L].

    kernels: the products of leaves whose sum each kernel is.

    Raises:
        ValueError: length below 2.
        DataError: `spectrum` cannot write a leaf as lines.
    """
    grid = np.linspace(0.0, 1.0, _check_length(length))
    streams, size = Streams(), max(1, _STEPS_AT_ONCE // length)
    values = np.empty((len(kernels), length))
    for start in range(0, len(kernels), size):
        part = [[term(leaves) for leaves in products] for products in kernels[start : start + size]]
        waves = _waves(part)
        noise, white = np.empty(2 * int(waves.width.sum())), np.empty(length)
        at, white_parts = 0, {}
        for row, (terms, seed) in enumerate(zip(part, seeds[start : start + size], strict=True)):
            stream, until = streams.of(seed, VALUES), at + 2 * int(waves.width[row])
            stream.standard_normal(out=noise[at:until])
            at = until
            if variance := [product.diagonal(grid) for product in terms if product.white]:
                white_parts[row] = np.sqrt(sum(variance)) * stream.standard_normal(out=white)
        values[start : start + size] = _add_up(waves, noise, grid)
        for row, white_values in white_parts.items():
            values[start + row] += white_values
    return values


def sampled_covariance(products: Sequence[tuple[Leaf, ...]], length: int) -> Float64[np.ndarray, "step step"]:
    """Return the covariance [L, L] of what `synthesise` draws.

    The linear map from noise to values is applied to unit vectors, so the result is exact, not an estimate.
    """
    grid, terms = np.linspace(0.0, 1.0, _check_length(length)), [term(leaves) for leaves in products]
    size = 2 * int(_waves([terms]).width[0])
    total = np.diag(sum((product.diagonal(grid) for product in terms if product.white), start=np.zeros(length)))
    for start in range(0, size, 512):
        rows = min(512, size - start)
        values = _add_up(_waves([terms] * rows), np.eye(rows, size, start).ravel(), grid)
        total += values.T @ values
    return total


def _check_length(length: int) -> int:
    if length < 2:
        raise ValueError(f"length: expected at least 2, got {length}")
    return length


class _Waves(NamedTuple):
    """Lines of a block of series, flattened into arrays.

    A row is one power of x of one series. An entry adds the lines of one term to a row.
    """

    # Number of lines of all entries of a series: [series].
    width: np.ndarray
    # Series, and power of x, of each row: [row].
    series: np.ndarray
    degree: np.ndarray
    # Row, spectrum, and factor of the amplitudes, of each entry: [entry].
    row: np.ndarray
    spectrum: np.ndarray
    scale: np.ndarray
    # Index of the first line of each spectrum: [spectrum + 1].
    first: np.ndarray
    # Lines of all spectra: [line].
    frequency: np.ndarray
    amplitude: np.ndarray


def _waves(kernels: Sequence[Sequence[Term]]) -> _Waves:
    numbers: dict[tuple[Leaf, ...], int] = {}
    lines: list[Spectrum] = []
    rows: list[tuple[int, int]] = []
    entries: list[tuple[int, int, float]] = []
    width = np.zeros(len(kernels), dtype=np.int64)
    for series, terms in enumerate(kernels):
        row_of: dict[int, int] = {}
        for product in terms:
            if product.white:
                continue
            number = numbers.setdefault(product.leaves, len(lines))
            if number == len(lines):
                lines.append(spectrum(product.leaves))
            for degree, coefficient in enumerate(product.polynomial):
                if coefficient:
                    row = row_of.setdefault(degree, len(rows))
                    if row == len(rows):
                        rows.append((series, degree))
                    entries.append((row, number, math.sqrt(coefficient)))
                    width[series] += len(lines[number].weight)
    of_rows = np.array(rows, dtype=np.int64).reshape(-1, 2)
    of_entries = np.array([entry[:2] for entry in entries], dtype=np.int64).reshape(-1, 2)
    nothing = np.empty(0)
    return _Waves(
        width=width,
        series=of_rows[:, 0],
        degree=of_rows[:, 1],
        row=of_entries[:, 0],
        spectrum=of_entries[:, 1],
        scale=np.array([entry[2] for entry in entries]),
        first=np.cumsum([0, *(len(product.weight) for product in lines)]),
        frequency=np.concatenate([nothing, *(product.frequency for product in lines)]),
        amplitude=np.sqrt(np.concatenate([nothing, *(product.weight for product in lines)])),
    )


def _add_up(waves: _Waves, noise: np.ndarray, grid: np.ndarray) -> np.ndarray:
    """Compute values [series, L] from two standard normal numbers per line, in the order of the entries."""
    from scipy.fft import irfft

    length = len(grid)
    transform, correction = _transform(length)
    spread = np.zeros((len(waves.series), transform // 2 + 1), dtype=np.complex128)
    level = np.zeros(len(waves.series))
    _spread(
        waves.frequency * (transform / (length - 1)), waves.amplitude, waves.first, waves.row, waves.spectrum,
        waves.scale, noise, _window(), spread, level,
    )  # fmt: skip
    steps = irfft(spread, n=transform, overwrite_x=True)
    powers = grid ** np.arange(waves.degree.max(initial=0) + 1)[:, None]
    values = np.zeros((len(waves.width), length))
    _assemble(steps, correction, level, powers, waves.series, waves.degree, values)
    return values


@lru_cache(maxsize=8)
def _transform(length: int) -> tuple[int, np.ndarray]:
    """Return the number of steps of the transform and the correction factors [L].

    The transform's output is multiplied by the factors, given at steps -L//2, ... around the series' middle.
    """
    from scipy.fft import next_fast_len

    size = 2 * next_fast_len(max(length, 2 * WIDTH), real=True)
    nodes, weights = np.polynomial.legendre.leggauss(64)
    window = np.exp(_BETA * (np.sqrt(1 - nodes**2) - 1)) * weights * (WIDTH / 2)
    steps = np.arange(length) - length // 2
    return size, size / 2 / (np.cos(np.pi * WIDTH / size * np.multiply.outer(steps, nodes)) @ window)


@lru_cache(maxsize=1)
def _window() -> np.ndarray:
    """Return polynomials [degree + 1, WIDTH] that approximate the window at a line's WIDTH neighbours.

    Their variable, in [0, 1], is the fraction of a grid step between the line's leftmost window edge and its
    first neighbour.
    """
    share = (1 - np.cos(np.pi * (np.arange(_DEGREE + 1) + 0.5) / (_DEGREE + 1))) / 2
    position = (np.arange(WIDTH)[:, None] - WIDTH / 2 + share) * (2 / WIDTH)
    values = np.exp(_BETA * (np.sqrt(np.maximum(1 - position**2, 0)) - 1))
    fits = [np.polynomial.Polynomial.fit(share, row, _DEGREE, domain=[0, 1], window=[0, 1]).coef for row in values]
    return np.ascontiguousarray(np.transpose(fits))


@njit(cache=True)
def _spread(  # type: ignore[no-untyped-def]
    position, amplitude, first, row, number, scale, noise, window, spread, level
):  # pragma: no cover - compiled
    """Add every line's random amplitude to its neighbours on the frequency grid.

    Folding a frequency back into the grid changes the sign of the sine; the distribution of the draw stays
    the same.
    """
    last = spread.shape[1] - 1
    weight, at = np.empty(WIDTH), 0
    for entry in range(len(row)):
        target = spread[row[entry]]
        for line in range(first[number[entry]], first[number[entry] + 1]):
            cosine = noise[at] * amplitude[line] * scale[entry]
            sine = noise[at + 1] * amplitude[line] * scale[entry]
            at += 2
            # The unit vectors of `sampled_covariance` are almost all zeros.
            if cosine == 0 and sine == 0:
                continue
            if position[line] == 0:
                level[row[entry]] += cosine
                continue
            grid_position = position[line] % (2 * last)
            grid_position = min(grid_position, 2 * last - grid_position)
            start = math.ceil(grid_position - WIDTH / 2)
            share = start + WIDTH / 2 - grid_position
            weight[:] = window[_DEGREE]
            for degree in range(_DEGREE - 1, -1, -1):
                for j in range(WIDTH):
                    weight[j] = weight[j] * share + window[degree, j]
            for j in range(WIDTH):
                bin_ = start + j
                if bin_ < 0:
                    target[-bin_] += complex(cosine, sine) * weight[j]
                elif bin_ > last:
                    target[2 * last - bin_] += complex(cosine, sine) * weight[j]
                else:
                    target[bin_] += complex(cosine, -sine) * weight[j]
    for entry in range(spread.shape[0]):
        spread[entry, 0] *= 2
        spread[entry, last] *= 2


@njit(cache=True)
def _assemble(  # type: ignore[no-untyped-def]
    steps, correction, level, powers, series, degree, values
):  # pragma: no cover - compiled
    """Compute values[series] += (step * correction + level) * x^degree.

    Step 0 of the transform is the series' middle.
    """
    size, length = steps.shape[1], values.shape[1]
    half = length // 2
    for row in range(len(steps)):
        for t in range(length):
            step = steps[row, size - half + t] if t < half else steps[row, t - half]
            values[series[row], t] += (step * correction[t] + level[row]) * powers[degree[row], t]

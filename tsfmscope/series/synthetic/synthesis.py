"""Draws of Gaussian processes whose kernels are sums of products of leaves, without a covariance matrix.

On the grid x = linspace(0, 1, L), each product of leaves of the multiplied-out kernel is one of two things:

- with a White leaf: a diagonal, because the stationary leaves are 1 at lag 0;
- else a polynomial sum_k c_k (x x')^k, from the DotProduct and Constant leaves, times a stationary kernel,
  which `kernel_spectra` gives as lines. Its draws are sum_k x^k sqrt(c_k) s_k(x), where the s_k are
  independent sums of random waves.

The waves of a series are added up by a non-uniform fast Fourier transform (Dutt & Rokhlin 1993). Each line is
spread over a few neighbours on a regular grid of frequencies with the "exponential of semicircle" window
(Barnett et al. 2019). One real inverse transform gives the steps, which are then divided by the window's own
transform. Lines at frequency 0 do not pass through the transform, so constants, straight lines and powers are
exact.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from jaxtyping import Float64
from numba import njit

from tsfmscope.series.synthetic.kernel_spectra import Spectrum, order, spectrum
from tsfmscope.series.synthetic.kernels import Leaf
from tsfmscope.series.synthetic.random_streams import Streams

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
    kernels: Sequence[Sequence[Term]], seeds: Sequence[int], length: int
) -> Float64[np.ndarray, "series step"]:
    """Draw one series per kernel (given as its terms) and seed on linspace(0, 1, length), [N, L].

    Raises:
        ValueError: length below 2.
        DataError: `kernel_spectra` cannot write a leaf as lines.
    """
    grid = np.linspace(0.0, 1.0, _check_length(length))
    streams, size = Streams(), max(1, _STEPS_AT_ONCE // length)
    values = np.empty((len(kernels), length))
    for start in range(0, len(kernels), size):
        part = kernels[start : start + size]
        waves = _waves(part)
        noise, white = np.empty(2 * int(waves.width.sum())), np.empty(length)
        at, white_parts = 0, {}
        for row, (terms, seed) in enumerate(zip(part, seeds[start : start + size], strict=True)):
            stream, until = streams.values(seed), at + 2 * int(waves.width[row])
            stream.standard_normal(out=noise[at:until])
            at = until
            if variance := [product.diagonal(grid) for product in terms if product.white]:
                white_parts[row] = np.sqrt(sum(variance)) * stream.standard_normal(out=white)
        values[start : start + size] = _add_up(waves, noise, grid)
        for row, white_values in white_parts.items():
            values[start + row] += white_values
    return values


def sampled_covariance(terms: Sequence[Term], length: int) -> Float64[np.ndarray, "step step"]:
    """Return the covariance [L, L] of what `synthesise` draws.

    The linear map from noise to values is applied to unit vectors, so the result is exact, not an estimate.
    """
    grid = np.linspace(0.0, 1.0, _check_length(length))
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

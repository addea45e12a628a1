"""Yu et al. 2026, Theorem 1: the smoother an embedding, the faster its singular values decay."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from tsfmscope.theory.bound_check import BoundCheck, tightest_case
from tsfmscope.theory.matrices import rounding_error

# Map from points [L] to [d, L].
Embedding = Callable[[np.ndarray], np.ndarray]
# Number of nodes of the Gauss-Legendre rule for an analytic quasimatrix.
NODES = 160


class Smooth(NamedTuple):
    """Embedding φ with ν derivatives.

    variation: bound on the total variation of every φ_i^(ν). knots: points where φ is not smooth.
    """

    embed: Embedding
    nu: int
    variation: float
    knots: np.ndarray
    kind: str


class Analytic(NamedTuple):
    """Embedding φ with |φ_i| ≤ `largest` on the Bernstein ellipse of radius `rho`."""

    embed: Embedding
    rho: float
    largest: float
    kind: str


def smooth_bound(smooth: Smooth, width: int, points: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return j and the right sides of part 1 for ν + 1 < j ≤ d - 1.

    The right sides bound s_{j+1} (quasimatrix) and σ_{j+1} (matrix), in this order.
    """
    j = np.arange(smooth.nu + 2, width)
    rate = smooth.variation / (np.pi * smooth.nu * (j - 1.0 - smooth.nu) ** smooth.nu)
    return j, 4 * np.sqrt(width) * rate, 2 * np.sqrt(width * points) * rate


def analytic_bound(analytic: Analytic, width: int, points: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return j and the right sides of part 2, as `smooth_bound`, for 0 ≤ j ≤ d - 1."""
    j = np.arange(width)
    rate = analytic.largest * analytic.rho ** (1.0 - j) / (analytic.rho - 1)
    return j, 4 * np.sqrt(width) * rate, 2 * np.sqrt(width * points) * rate


def quasimatrix_values(embed: Embedding, knots: Float[np.ndarray, " knot"], nodes: int) -> Float[np.ndarray, " rank"]:
    """Return the singular values of [φ_1(x) ... φ_d(x)] in L²([-1, 1]).

    They are computed from the values at Gauss-Legendre nodes between the knots. The result is exact where
    every product φ_i φ_j is a polynomial between knots, of a degree below 2 · `nodes`.
    """
    points, weights = np.polynomial.legendre.leggauss(nodes)
    ends = np.concatenate([[-1.0], np.sort(knots), [1.0]])
    half, middle = np.diff(ends)[:, None] / 2, (ends[:-1] + ends[1:])[:, None] / 2
    values = embed((middle + half * points).ravel()) * np.sqrt((half * weights).ravel())
    return np.linalg.svd(values, compute_uv=False)


def smooth_instance(rng: np.random.Generator) -> dict[str, list[BoundCheck]]:
    """Check part 1 at a random spline, for the matrix and for the quasimatrix."""
    width, points = int(rng.integers(6, 25)), int(rng.integers(6, 65))
    smooth = random_spline(rng, width)
    setting = {"width": width, "points": points, "nu": smooth.nu, "case": smooth.kind, "variation": smooth.variation}
    j, continuous, discrete = smooth_bound(smooth, width, points)
    exact = quasimatrix_values(smooth.embed, smooth.knots, smooth.nu + 3)
    values = np.linalg.svd(smooth.embed(random_points(rng, points)), compute_uv=False)
    return {
        "Theorem 1.1": [_check(j, values, discrete, width, points, setting)],
        "Theorem 1.1 quasimatrix": [_check(j, exact, continuous, width, points, setting)],
    }


def analytic_instance(rng: np.random.Generator) -> dict[str, list[BoundCheck]]:
    """Check part 2 at a random analytic function, for the matrix and for the quasimatrix."""
    width, points = int(rng.integers(2, 25)), int(rng.integers(2, 65))
    analytic = random_analytic(rng, width)
    setting = {"width": width, "points": points, "rho": analytic.rho, "case": analytic.kind, "M": analytic.largest}
    j, continuous, discrete = analytic_bound(analytic, width, points)
    exact = quasimatrix_values(analytic.embed, np.array([]), NODES)
    values = np.linalg.svd(analytic.embed(random_points(rng, points)), compute_uv=False)
    return {
        "Theorem 1.2": [_check(j, values, discrete, width, points, setting)],
        "Theorem 1.2 quasimatrix": [_check(j, exact, continuous, width, points, setting)],
    }


def random_spline(rng: np.random.Generator, width: int) -> Smooth:
    """Draw φ_i = p_i + Σ_k c_ik (x - t_k)_+^(ν+m) / (ν+m)!, a spline whose variation is known.

    Its derivative is φ_i^(ν) = Σ_k c_ik (x - t_k)_+^m / m! + constant. With m = 1, φ_i^(ν) is absolutely
    continuous, as printed. With m = 0 it jumps, which is the roughest function that the proof's source
    (Trefethen 2019, Theorem 7.2) allows. Its variation, ∫ |Σ_k c_ik 1(x > t_k)| for m = 1 and Σ_k |c_ik| for
    m = 0, is exact.
    """
    nu, m, knots = int(rng.integers(1, 4)), int(rng.integers(2)), np.sort(rng.uniform(-1, 1, rng.integers(1, 40)))
    jumps = rng.standard_normal((width, len(knots)))
    # Polynomials of degree ν: the ν-th derivative is constant.
    low = rng.standard_normal((width, nu + 1))
    gaps = np.diff(np.append(knots, 1.0))
    variations = np.abs(jumps).sum(axis=1) if m == 0 else np.abs(np.cumsum(jumps, axis=1)) @ gaps
    factorial = float(np.prod(np.arange(1, nu + m + 1)))

    def embed(x: np.ndarray) -> np.ndarray:
        rough = np.maximum(x - knots[:, None], 0.0) ** (nu + m) / factorial  # [knot, L]
        return jumps @ rough + low @ np.power(x, np.arange(nu + 1)[:, None])  # type: ignore[no-any-return]

    return Smooth(embed, nu, float(variations.max()), knots, "ramps" if m else "jumps")


def random_analytic(rng: np.random.Generator, width: int) -> Analytic:
    """Draw an analytic embedding whose largest value M on the ellipse is known in closed form.

    The functions are poles outside the ellipse, exponentials, Chebyshev polynomials, or Chebyshev series. On
    the ellipse |x| ≤ a = (ρ + 1/ρ)/2, |x - z| ≥ |z| - a for a pole z, |e^{cx}| ≤ e^{|c| a}, |T_n| ≤ (ρ^n +
    ρ^-n)/2.
    """
    rho, kind = float(1 + 10 ** rng.uniform(-1, 0.6)), ("poles", "exponentials", "chebyshev", "series")[rng.integers(4)]
    a = (rho + 1 / rho) / 2
    if kind == "poles":
        poles = a * (1 + rng.uniform(0.01, 1.0, width)) * rng.choice([-1.0, 1.0], width)
        largest = 1 / np.min(np.abs(poles) - a)
        return Analytic(lambda x: 1 / (x - poles[:, None]), rho, float(largest), kind)
    if kind == "exponentials":
        rates = rng.uniform(-6, 6, width)
        return Analytic(lambda x: np.exp(rates[:, None] * x), rho, float(np.exp(np.abs(rates).max() * a)), kind)
    degrees = np.arange(width)
    peaks = (rho**degrees + rho**-degrees) / 2
    weights = np.diag(1 / peaks) if kind == "chebyshev" else rng.standard_normal((width, width)) / peaks
    largest = float((np.abs(weights) @ peaks).max())
    return Analytic(lambda x: weights @ np.cos(degrees[:, None] * np.arccos(x)), rho, largest, kind)


def random_points(rng: np.random.Generator, count: int) -> Float[np.ndarray, " point"]:
    """Draw points of [-1, 1]: uniform, dense at both ends, in one cluster, or evenly spaced."""
    kind = rng.integers(4)
    if kind == 0:
        return rng.uniform(-1, 1, count)
    if kind == 1:
        return np.sin(rng.uniform(-np.pi / 2, np.pi / 2, count))
    if kind == 2:
        return np.clip(rng.uniform(-1, 1) + 0.05 * rng.standard_normal(count), -1, 1)
    return np.linspace(-1, 1, count)


def _check(j: np.ndarray, values: np.ndarray, bound: np.ndarray, width: int, points: int, setting: dict) -> BoundCheck:
    """Check σ_{j+1} against its bound at the tightest j; singular values beyond min(d, L) are 0."""
    padded = np.append(values, np.zeros(max(0, width - len(values))))[:width]
    floor = rounding_error(float(values[0]), width, max(points, NODES))
    return tightest_case("printed", "upper", j, padded[j], bound, floor=floor, setting=setting)

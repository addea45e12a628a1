"""Yu et al. 2026, Theorems 1 and 2 and Corollary 2: embeddings have low rank.

- Theorem 1: the smoother an embedding, the faster its singular values decay.
- Corollary 2: Time-MoE's pointwise gated embedding has low rank, lower for a smoother gate.
- Theorem 2: a two-layer residual MLP maps patches of length k into few directions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.linalg import hadamard
from scipy.special import erf, expit

from tsfmscope.theory.instances import FORMS, BoundCheck, rounding_error, tightest_case

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
    exact = quasimatrix_values(smooth.embed, smooth.knots, smooth.nu + 3)
    values = np.linalg.svd(smooth.embed(random_points(rng, points)), compute_uv=False)
    return _checks("Theorem 1.1", smooth_bound(smooth, width, points), values, exact, setting)


def analytic_instance(rng: np.random.Generator) -> dict[str, list[BoundCheck]]:
    """Check part 2 at a random analytic function, for the matrix and for the quasimatrix."""
    width, points = int(rng.integers(2, 25)), int(rng.integers(2, 65))
    analytic = random_analytic(rng, width)
    setting = {"width": width, "points": points, "rho": analytic.rho, "case": analytic.kind, "M": analytic.largest}
    exact = quasimatrix_values(analytic.embed, np.array([]), NODES)
    values = np.linalg.svd(analytic.embed(random_points(rng, points)), compute_uv=False)
    return _checks("Theorem 1.2", analytic_bound(analytic, width, points), values, exact, setting)


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


def _checks(
    part: str, bounds: Sequence[np.ndarray], values: np.ndarray, exact: np.ndarray, setting: dict[str, Any]
) -> dict[str, list[BoundCheck]]:
    """Check σ_{j+1} and s_{j+1} against their bounds at the tightest j; values beyond min(d, L) are 0."""
    (j, continuous, discrete), width, checks = bounds, setting["width"], {}
    for name, found, bound in ((part, values, discrete), (f"{part} quasimatrix", exact, continuous)):
        padded = np.append(found, np.zeros(max(0, width - len(found))))
        floor = rounding_error(float(found[0]), width, max(setting["points"], NODES))
        checks[name] = [tightest_case("printed", "upper", j, padded[j], bound, floor=floor, setting=setting)]
    return checks


# Values of β at which the rate is measured.
BETAS = (0.5, 1.0, 2.0, 4.0)
# Share of σ_1 below which singular values are left out of a slope.
MIN_SHARE = 1e-11
# Largest log10 of |w_i| of instances that the printed hypothesis allows and the proof does not.
WIDEST = 3.5


class Gate(NamedTuple):
    """Gated embedding φ_i(x) = swish_β(w_i x) v_i x = w_i v_i x² / (1 + e^{-β w_i x})."""

    beta: float
    w: np.ndarray
    v: np.ndarray

    def embed(self, x: Float[np.ndarray, " point"]) -> Float[np.ndarray, "width point"]:
        """Return Ψ, the embedded points [width, point].

        The last formula of Yu et al. 2026, Corollary 2 has e^{-βx} without w_i. With it, all φ_i would be
        multiples of one function, and Ψ would have rank 1.
        """
        pre = self.beta * self.w[:, None] * x
        return np.asarray((self.w * self.v)[:, None] * x**2 * 0.5 * (1 + np.tanh(pre / 2)))


def radius(beta: float) -> float:
    """Return ρ = 1 + π/(2β), the radius of the proof."""
    return 1 + np.pi / (2 * beta)


def proof_ellipse(beta: float) -> Analytic:
    """Return the ellipse and the bound that the proof needs, with its constant.

    On the ellipse, |φ_i| ≤ a², a = (ρ + 1/ρ)/2. This requires |w_i| ≤ 1: then |Im x| ≤ (ρ - 1/ρ)/2 < π/(2β),
    so Re e^{-β w_i x} > 0 and |1 + e^{-β w_i x}| ≥ 1. The poles lie at (2k+1)πi/(β w_i). A larger |w_i| moves
    them into the ellipse, whatever v_i is.
    """
    rho = radius(beta)
    return Analytic(lambda x: x, rho, ((rho + 1 / rho) / 2) ** 2, "swish")


def corollary_instance(rng: np.random.Generator) -> dict[str, list[BoundCheck]]:
    """Check Corollary 2 at one random instance of the printed and one of the repaired hypothesis.

    printed: only |w_i v_i| ≤ 1, with |w_i| up to 10^WIDEST. repaired: |w_i| ≤ 1 as well. Both have the same
    right side.
    """
    width, points, beta = int(rng.integers(4, 33)), int(rng.integers(8, 65)), float(10 ** rng.uniform(-1.5, 0.9))
    x = random_points(rng, points)
    product = rng.uniform(-1, 1, width)
    sides = []
    for form, exponent in zip(FORMS, (WIDEST, 0.0), strict=True):
        w = 10 ** rng.uniform(-2, exponent, width) * rng.choice([-1.0, 1.0], width)
        values = np.linalg.svd(Gate(beta, w, product / w).embed(x), compute_uv=False)
        j, _, bound = analytic_bound(proof_ellipse(beta), width, points)
        padded = np.append(values, np.zeros(max(0, width - len(values))))[:width]
        setting = {"width": width, "points": points, "beta": beta, "largest_w": float(np.abs(w).max())}
        floor = rounding_error(max(float(values[0]), 1e-300), width, points)
        sides.append(tightest_case(form, "upper", j, padded, bound, floor=floor, setting=setting))
    return {"Corollary 2": sides}


def rate_points(seed: int, beta: float, *, width: int = 64, points: int = 512) -> list[dict[str, float | bool]]:
    """Return σ_{j+1} of Ψ at random points for j = 1, 2, ..., 12.

    `fitted` is true where σ_{j+1} is above MIN_SHARE σ_1. The printed decay of -ln ρ per step, ρ = 1 + π/(2β),
    is only an upper bound. Except for x²/2, φ_i is odd, so every second degree adds nothing. For |w_i| < 1,
    the poles are farther away.
    """
    rng = np.random.default_rng([seed, 20])
    w, v = rng.uniform(-1, 1, (2, width))
    values = np.linalg.svd(Gate(beta, w, v).embed(rng.uniform(-1, 1, points)), compute_uv=False)
    is_large = values > MIN_SHARE * values[0]
    return [{"x": float(j), "y": float(values[j]), "fitted": bool(is_large[j])} for j in range(1, 13)]


Activation = Callable[[np.ndarray], np.ndarray]
# All functions satisfy |ω(x)| ≤ |x|.
ACTIVATIONS: dict[str, Activation] = {
    "relu": lambda x: np.maximum(x, 0.0),
    "silu": lambda x: x * expit(x),
    "gelu": lambda x: x * 0.5 * (1 + erf(x / np.sqrt(2))),
    "tanh": np.tanh,
    "sine": np.sin,
    # As rough as the hypothesis allows: it destroys the low rank of its input.
    "folded": lambda x: x * np.cos(1e4 * x),
}


def right_side(width: int, patch: int, epsilon: float) -> float:
    """Return min{d, (1 + ε⁻²) k}."""
    return min(float(width), (1 + epsilon**-2) * patch)


def count_above(
    embedded: Float[np.ndarray, "width patches"],
    second: Float[np.ndarray, "width hidden"],
    hidden: Float[np.ndarray, "hidden patches"],
    epsilon: float,
) -> tuple[int, int]:
    """Return #{σ_j(Φ(X)) > ε ‖W₂‖ ‖W₁X‖}, and the numerical rank #{σ_j > ε σ_1} of eq. 1.

    The theorem bounds the first number only.
    """
    values = np.linalg.svd(embedded, compute_uv=False)
    scale = np.linalg.norm(second, 2) * np.linalg.norm(hidden, 2)
    return int((values > epsilon * scale * (1 + 1e-12)).sum()), int((values > epsilon * values[0]).sum())


def mlp_instance(rng: np.random.Generator) -> dict[str, list[BoundCheck]]:
    """Check Theorem 2 at a random MLP on random patches, or at `hadamard_instance` with probability 0.2.

    With probability 0.5 the MLP has biases. X then has an additional row of ones and k is the rank of that
    matrix, because W₁X + b₁ = [W₁ b₁][X; 1].
    """
    if rng.random() < 0.2:
        return {"Theorem 2": [hadamard_instance(rng)]}
    patch, width = int(rng.integers(1, 9)), int(rng.integers(10, 49))
    hidden, patches = int(rng.integers(4, 65)), int(rng.integers(4, 97))
    name = tuple(ACTIVATIONS)[rng.integers(len(ACTIVATIONS))]
    inputs = rng.standard_normal((patch, patches)) * 10 ** rng.uniform(-2, 1)
    has_bias = bool(rng.integers(2))
    if has_bias:
        inputs = np.vstack([inputs, np.ones(patches)])
    first, second = rng.standard_normal((hidden, len(inputs))), rng.standard_normal((width, hidden))
    third = rng.standard_normal((width, len(inputs))) * 10 ** rng.uniform(-2, 1)
    epsilon = float(10 ** rng.uniform(-1.5, 0.3))
    inner = first @ inputs
    count, rank = count_above(third @ inputs + second @ ACTIVATIONS[name](inner), second, inner, epsilon)
    k = int(np.linalg.matrix_rank(inputs))
    setting = {"width": width, "patch": patch, "rank": k, "hidden": hidden, "patches": patches, "case": name}
    setting |= {"biases": has_bias, "epsilon_rank": rank}
    return {"Theorem 2": [BoundCheck("printed", "upper", epsilon, count, right_side(width, k, epsilon), 0.0, setting)]}


def hadamard_instance(rng: np.random.Generator) -> BoundCheck:
    """Check Theorem 2 at the tightest instance known: k = 1 and all n singular values of ω(W₁X) equal.

    W₁X has rank 1 with n² different entries near 1, and ε is just below n^(-1/2). ω, defined by its values at
    these entries, gives them the signs of a Hadamard matrix. Then σ_j(Φ) = √n for all j and ‖W₁X‖ = n, so n
    singular values are above the threshold, and (1 + ε⁻²) k is n + 1.
    """
    size = int(2 ** rng.integers(1, 6))
    inner = np.outer(1 + 1e-6 * rng.random(size), 1 + 1e-6 * rng.random(size))
    signed = inner * hadamard(size)
    epsilon = float(size**-0.5 * (1 - 1e-4))
    width = 2 * size
    second = np.vstack([np.eye(size), np.zeros((size, size))])
    count, rank = count_above(second @ signed, second, inner, epsilon)
    setting = {"width": width, "patch": 1, "rank": 1, "hidden": size, "patches": size, "case": "hadamard"}
    setting |= {"biases": False, "epsilon_rank": rank}
    return BoundCheck("printed", "upper", epsilon, count, right_side(width, 1, epsilon), 0.0, setting)

"""Yu et al. 2026, Corollary 2: Time-MoE's pointwise gated embedding has low rank, lower for a smoother gate."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from tsfmscope.theory.bound_check import FORMS, BoundCheck, tightest_case
from tsfmscope.theory.matrices import rounding_error
from tsfmscope.theory.theorem1 import Analytic, analytic_bound, random_points

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

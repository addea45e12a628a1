"""Corollary 2: Time-MoE's pointwise gated embedding is low-rank; the smoother its gate, the lower."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from tasks.theory.matrices import rounding
from tasks.theory.sides import FORMS, Side, tightest
from tasks.theory.theorem1 import Analytic, analytic_bound, random_points

BETAS = (0.5, 1.0, 2.0, 4.0)  # of the rate's measurement
TRUSTED = 1e-11  # of σ_1: singular values below it take no part in a slope
WIDEST = 3.5  # log10 of |w_i| of instances that the printed hypothesis allows and the proof does not


class Gate(NamedTuple):
    """φ_i(x) = swish_β(w_i x) v_i x = w_i v_i x² / (1 + e^{-β w_i x})."""

    beta: float
    w: np.ndarray
    v: np.ndarray

    def embed(self, x: Float[np.ndarray, " point"]) -> Float[np.ndarray, "width point"]:
        """Ψ. The paper's last formula has e^{-βx}, without w_i: then all φ_i were one function, and Ψ of rank 1."""
        pre = self.beta * self.w[:, None] * x
        gated: np.ndarray = (self.w * self.v)[:, None] * x**2 * 0.5 * (1 + np.tanh(pre / 2))
        return gated


def radius(beta: float) -> float:
    """ρ = 1 + π/(2β), the proof's."""
    return 1 + np.pi / (2 * beta)


def proved(beta: float) -> Analytic:
    """What the proof needs on the ellipse, with its constant written out: |φ_i| ≤ a², a = (ρ + 1/ρ)/2.

    For |w_i| ≤ 1: |Im x| ≤ (ρ - 1/ρ)/2 < π/(2β), so Re e^{-β w_i x} > 0 and |1 + e^{-β w_i x}| ≥ 1. The poles lie at
    (2k+1)πi/(β w_i): a larger |w_i| moves them into the ellipse, whatever v_i.
    """
    rho = radius(beta)
    return Analytic(lambda x: x, rho, ((rho + 1 / rho) / 2) ** 2, "swish")


def corollary_instance(rng: np.random.Generator) -> dict[str, list[Side]]:
    """printed: |w_i v_i| ≤ 1 alone, |w_i| to 10^WIDEST; repaired: |w_i| ≤ 1 too. One right side for both."""
    width, points, beta = int(rng.integers(4, 33)), int(rng.integers(8, 65)), float(10 ** rng.uniform(-1.5, 0.9))
    x = random_points(rng, points)
    product = rng.uniform(-1, 1, width)
    sides = []
    for form, reach in zip(FORMS, (WIDEST, 0.0), strict=True):
        w = 10 ** rng.uniform(-2, reach, width) * rng.choice([-1.0, 1.0], width)
        values = np.linalg.svd(Gate(beta, w, product / w).embed(x), compute_uv=False)
        j, _, bound = analytic_bound(proved(beta), width, points)
        padded = np.append(values, np.zeros(max(0, width - len(values))))[:width]
        setting = {"width": width, "points": points, "beta": beta, "largest_w": float(np.abs(w).max())}
        floor = rounding(max(float(values[0]), 1e-300), width, points)
        sides.append(tightest(form, "upper", j, padded, bound, floor=floor, setting=setting))
    return {"Corollary 2": sides}


def rate_points(seed: int, beta: float, *, width: int = 64, points: int = 512) -> list[dict[str, float | bool]]:
    """σ_{j+1} at j = 1, 2, ... of Ψ at random points; `fitted` where it is above TRUSTED σ_1.

    The printed decay is -ln ρ a step, ρ = 1 + π/(2β), from above only: all but x²/2 of φ_i is odd, so that every second
    degree adds nothing, and the poles of |w_i| < 1 lie farther out.
    """
    rng = np.random.default_rng([seed, 20])
    w, v = rng.uniform(-1, 1, (2, width))
    values = np.linalg.svd(Gate(beta, w, v).embed(rng.uniform(-1, 1, points)), compute_uv=False)
    trusted = values > TRUSTED * values[0]
    return [{"x": float(j), "y": float(values[j]), "fitted": bool(trusted[j])} for j in range(1, 13)]

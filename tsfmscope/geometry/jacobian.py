"""Numerical check of Shelim et al. 2025, Lemma 1: the norm of self-attention's Jacobian against three upper bounds."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

# Largest N d of an instance: its Jacobian is dense and takes 32 MiB in float64.
LARGEST = 2048
# Relative tolerance: a smaller difference is rounding of the two sides.
SLACK = 1e-9


@dataclass(frozen=True)
class Bounds:
    """Jacobian norm ‖J‖₂ and three upper bounds: as printed, with Appendix B's N, and one that is proved."""

    norm: float
    printed: float
    appendix: float
    safe: float

    @property
    def violated(self) -> dict[str, bool]:
        """Return, for each bound, whether the norm exceeds it."""
        return {name: self.norm > getattr(self, name) * (1 + SLACK) for name in ("printed", "appendix", "safe")}


def jacobian_bounds(states: Float[np.ndarray, "token width"], interaction: Float[np.ndarray, "width width"]) -> Bounds:
    """Compute ‖J‖₂ of G(Ψ) = softmax(Ψ Λ Ψᵀ) Ψ, one unscaled head, and its three bounds.

    With μ_i = Σ_j p_ij ψ_j:

        printed = ‖Λ‖ Σ_i (p_ii + ½) ‖ψ_i - μ_i‖² + Δ,  Δ = ‖Λ‖ Σ_{i≠j} p_ij ‖ψ_j - μ_i‖² + ½ ‖Λ‖ Σ ‖ψ_j‖²
        appendix = N + printed
        safe = N + 3/2 ‖Λ‖ Σ_ij p_ij ‖ψ_j - μ_i‖² + ½ ‖Λ‖ Σ ‖ψ_i‖²

    Source: Shelim et al. 2025, Lemma 1 and Appendix B; docs/science.md, Lemma 1. The lemma drops Appendix B's
    term |V| = N, so Λ = 0 gives 1 > 0. The last step of Appendix B bounds p_ij |ψ_iᵀ(ψ_j - μ_i)| by ½ ‖ψ_i -
    μ_i‖² where it needs ½ Σ_j p_ij ‖ψ_j - μ_i‖². `safe` avoids that step.

    J is computed by automatic differentiation in float64. Raises ValueError for wrong shapes, values that are
    not finite, and N d above LARGEST.
    """
    import torch

    psi, mixing = np.asarray(states, dtype=np.float64), np.asarray(interaction, dtype=np.float64)
    if psi.ndim != 2 or mixing.shape != (psi.shape[1], psi.shape[1]):
        raise ValueError(f"interaction: got shape {mixing.shape}, expected [width, width] of states {psi.shape}")
    if not 0 < psi.size <= LARGEST or not (np.isfinite(psi).all() and np.isfinite(mixing).all()):
        raise ValueError(
            f"states: got {psi.size} values, expected 1 to {LARGEST}, all finite, and a finite interaction"
        )
    weights = attention(psi, mixing)
    means = weights @ psi
    spread = weights * np.square(psi[None] - means[:, None]).sum(axis=2)  # p_ij ‖ψ_j - μ_i‖²  [N, N]
    own = np.square(psi - means).sum(axis=1)
    strength = float(np.linalg.norm(mixing, 2))
    halves = 0.5 * np.square(psi).sum()
    printed = strength * ((np.diag(weights) + 0.5) @ own + spread.sum() - np.trace(spread) + halves)
    safe = len(psi) + strength * (1.5 * spread.sum() + halves)
    matrix = torch.from_numpy(mixing)

    def mapping(rows: torch.Tensor) -> torch.Tensor:
        return torch.softmax(rows @ matrix @ rows.T, dim=1) @ rows

    jacobian = torch.func.jacrev(mapping)(torch.from_numpy(np.ascontiguousarray(psi)))
    norm = torch.linalg.matrix_norm(jacobian.reshape(psi.size, psi.size), 2)
    return Bounds(float(norm), float(printed), float(len(psi) + printed), float(safe))


def attention(
    states: Float[np.ndarray, "token width"], interaction: Float[np.ndarray, "width width"]
) -> Float[np.ndarray, "token token"]:
    """Return p_ij, the softmax over j of ψ_iᵀ Λ ψ_j."""
    scores = states @ interaction @ states.T
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    shares: np.ndarray = weights / weights.sum(axis=1, keepdims=True)
    return shares

"""Lemma 1 checked: the spectral norm of self-attention's Jacobian against three right sides."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

LARGEST = 2048  # N d of an instance: its Jacobian is dense, 32 MiB in float64
SLACK = 1e-9  # relative; less is rounding of the two sides


@dataclass(frozen=True)
class Bounds:
    """‖J‖₂ and the three right sides: as printed, with Appendix B's N, and one that is proved."""

    norm: float
    printed: float
    appendix: float
    safe: float

    @property
    def violated(self) -> dict[str, bool]:
        """Which right sides the norm passes."""
        return {name: self.norm > getattr(self, name) * (1 + SLACK) for name in ("printed", "appendix", "safe")}


def jacobian_bounds(states: Float[np.ndarray, "token width"], interaction: Float[np.ndarray, "width width"]) -> Bounds:
    """G(Ψ) = softmax(Ψ Λ Ψᵀ) Ψ, a single unscaled head: ‖J‖₂ by automatic differentiation in float64, and bounds.

    With μ_i = Σ_j p_ij ψ_j. Printed: ‖Λ‖ Σ_i (p_ii + ½)‖ψ_i - μ_i‖² + Δ, Δ = ‖Λ‖ Σ_{i≠j} p_ij ‖ψ_j - μ_i‖² +
    ½ ‖Λ‖ Σ ‖ψ_j‖². Source: isotropy paper, Lemma 1; Appendix B has |V| = N beside, which the statement drops, so that
    Λ = 0 gives 1 > 0. Appendix B's last step bounds p_ij |ψ_iᵀ(ψ_j - μ_i)| with ½‖ψ_i - μ_i‖² in place of
    ½ Σ_j p_ij ‖ψ_j - μ_i‖²; `safe` = N + 3/2 ‖Λ‖ Σ_ij p_ij ‖ψ_j - μ_i‖² + ½ ‖Λ‖ Σ ‖ψ_i‖² does not.
    Raises ValueError for wrong shapes, values that are not finite, and N d over LARGEST.
    """
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
    return Bounds(_jacobian_norm(psi, mixing), float(printed), float(len(psi) + printed), float(safe))


def attention(
    states: Float[np.ndarray, "token width"], interaction: Float[np.ndarray, "width width"]
) -> Float[np.ndarray, "token token"]:
    """p_ij = softmax over j of ψ_iᵀ Λ ψ_j."""
    scores = states @ interaction @ states.T
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    shares: np.ndarray = weights / weights.sum(axis=1, keepdims=True)
    return shares


def _jacobian_norm(states: np.ndarray, interaction: np.ndarray) -> float:
    import torch

    mixing = torch.from_numpy(interaction)

    def mapping(psi: torch.Tensor) -> torch.Tensor:
        return torch.softmax(psi @ mixing @ psi.T, dim=1) @ psi

    jacobian = torch.func.jacrev(mapping)(torch.from_numpy(np.ascontiguousarray(states)))
    return float(torch.linalg.matrix_norm(jacobian.reshape(states.size, states.size), 2))

"""Checks of the theory of Shelim et al. 2025 on the heads of a model.

Spectral alignment (Theorem 2) is the overlap of attention heads with the leading directions of their input, the
log-partition function (Theorem 1) that of a softmax head. Lemma 1 bounds the Jacobian of self-attention.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from tsfmscope.geometry.spectrum import axes_of_few_rows, is_wide

States = Float[np.ndarray, "token width"]
Matrix = Float[np.ndarray, "head_width width"]


@dataclass(frozen=True, eq=False)
class Axes:
    """Eigenvalues λ of ΨᵀΨ, descending and at least 0, and the eigenvectors as columns.

    If `is_wide(*states.shape)`, there is one eigenvector per row; the other eigenvalues are 0.
    """

    eigenvalues: Float[np.ndarray, " width"]
    directions: Float[np.ndarray, "width axis"]

    @classmethod
    def of(cls, states: States, *, centred: bool = True) -> Axes:
        """Compute the axes of the centred states, or of the states as given.

        Appendix B of Shelim et al. 2025 assumes centred states. Eigenvalues that rounding in the states' own
        dtype could produce from equal rows are set to 0. Raises ValueError for a wrong shape and for NaN or
        infinity.
        """
        kind = np.asarray(states).dtype
        rows = np.asarray(states, dtype=np.float64)
        if rows.ndim != 2 or not np.isfinite(rows).all():
            raise ValueError(f"states: got shape {rows.shape}, expected finite [token, width]; check the layer's input")
        # Overlaps do not depend on scale; scaled entries keep squares from overflowing.
        rows = rows / (np.abs(rows).max(initial=0.0) or 1.0)
        rows = rows - rows.mean(axis=0) if centred and len(rows) else rows
        if is_wide(*rows.shape):
            values, vectors = axes_of_few_rows(rows)
        else:
            ascending, columns = np.linalg.eigh(rows.T @ rows)
            values, vectors = ascending[::-1], columns[:, ::-1]
        epsilon = np.finfo(kind if kind.kind == "f" else np.float64).eps
        # Bound for rows that are equal up to 4 ε of the largest entry.
        rounding = 16 * rows.size * float(epsilon) ** 2
        return cls(np.where(values > rounding, values, 0.0), vectors)

    @property
    def rank(self) -> int:
        """Number of directions whose eigenvalue is above rounding."""
        least = self.eigenvalues[0] * len(self.eigenvalues) * np.finfo(np.float64).eps if len(self.eigenvalues) else 0.0
        return int(np.count_nonzero(self.eigenvalues > least))


@dataclass(frozen=True)
class Alignment:
    """Overlap in [0, 1] of a head's query and key spaces with the top m directions of its input.

    - m: rank of W_Qᵀ W_K.
    - chance, chance_sd: mean m/d and standard deviation of the overlap of a random m-dimensional space.
    - query, key: overlaps of the row spaces of W_Q and W_K.
    - inverse_cosine: cosine between diag(Γᵀ Λ Γ) on the top m directions and 1/λ.

    query, key and inverse_cosine are None where the states have fewer than m directions, or where m is 0.
    """

    m: int
    chance: float
    chance_sd: float
    query: float | None
    key: float | None
    inverse_cosine: float | None


def spectral_alignment(query: Matrix, key: Matrix, states: States | Axes) -> Alignment:
    """Return the overlap ‖P_Λ P_C‖²_F / m of one head with the leading directions of its input.

    Λ = W_Qᵀ W_K has rank m (W_Q, W_K of shape [d_h, d], q = W_Q ψ). P_C projects onto the m leading
    eigenvectors of C = ΨᵀΨ. P_Λ projects onto the left (query) or right (key) singular vectors of Λ, which
    span the row space of W_Q or W_K.

    Source: Shelim et al. 2025, Theorem 2. Its optimum Λ* = Σ_{i<m} γ_i γ_iᵀ / λ_i scores 1 on both sides and
    1 in `inverse_cosine`. The leading directions of Λ* are the weakest ones that it keeps, so a smaller m is
    not offered.

    Ψ is the input of the projections, after the pre-attention norm. Heads with rotation or query/key norm
    have no Λ. States are centred here. To use uncentred states, or to reuse one decomposition for many heads,
    pass Axes. The overlaps are None where the states have fewer than m directions, as centred constant
    states and a centred single token do, which have none. Raises ValueError for matrices of other shapes, and
    for states as `Axes.of` does.
    """
    axes = states if isinstance(states, Axes) else Axes.of(states)
    width = len(axes.eigenvalues)
    for name, matrix in (("query", query), ("key", key)):
        if matrix.ndim != 2 or matrix.shape != (query.shape[0], width):
            expected = f"expected [head width, {width}], as the states and query"
            raise ValueError(f"{name}: got shape {matrix.shape}, {expected}")
    left, singular, right = interaction(query, key)
    m = len(singular)
    chance, sd = chance_overlap(m, width)
    if m == 0 or axes.rank < m:
        return Alignment(m, chance, sd, None, None, None)
    top = axes.directions[:, :m]
    seen_left, seen_right = top.T @ left, top.T @ right  # [m, m]
    diagonal = np.einsum("im,m,im->i", seen_left, singular / singular[0], seen_right)
    query_overlap, key_overlap = (min(1.0, float(np.square(part).sum()) / m) for part in (seen_left, seen_right))
    return Alignment(m, chance, sd, query_overlap, key_overlap, _cosine(diagonal, 1 / axes.eigenvalues[:m]))


def head_alignments(
    query: Float[np.ndarray, "head_rows width"], key: Float[np.ndarray, "head_rows width"], heads: int, states: States
) -> Iterator[dict[str, float | int | None]]:
    """Yield one row per head of one self-attention layer, with the fields of Alignment.

    Each row has `head`, the fields of Alignment for centred states, and `query_uncentred`, `key_uncentred`
    and `inverse_cosine_uncentred`. query, key: [h d_h, d], heads stacked in order. Raises ValueError where
    `heads` does not divide the rows.
    """
    if heads < 1 or len(query) % heads:
        raise ValueError(f"heads: got {heads}, expected a divisor of the {len(query)} rows of query")
    centred, plain = Axes.of(states), Axes.of(states, centred=False)
    pairs = zip(np.split(np.asarray(query), heads), np.split(np.asarray(key), heads), strict=True)
    for head, (one_query, one_key) in enumerate(pairs):
        row: dict[str, float | int | None] = {"head": head, **vars(spectral_alignment(one_query, one_key, centred))}
        other = spectral_alignment(one_query, one_key, plain)
        row |= {f"{name}_uncentred": getattr(other, name) for name in ("query", "key", "inverse_cosine")}
        yield row


def interaction(query: Matrix, key: Matrix) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return left vectors [d, m], singular values [m] and right vectors [d, m] of W_Qᵀ W_K, of rank m.

    The product [d, d] is never formed.
    """
    query, key = (np.asarray(matrix, dtype=np.float64) for matrix in (query, key))
    query_basis, query_factor = np.linalg.qr(query.T)
    key_basis, key_factor = np.linalg.qr(key.T)
    left, values, right = np.linalg.svd(query_factor @ key_factor.T)
    least = max(query.shape) * np.finfo(np.float64).eps * (values[0] if len(values) else 0.0)
    rank = int(np.count_nonzero(values > least))
    return query_basis @ left[:, :rank], values[:rank], key_basis @ right[:rank].T


def chance_overlap(m: int, width: int) -> tuple[float, float]:
    """Return the mean m/d and the standard deviation of the overlap with a random m-dimensional space.

    One space is fixed, the other is uniformly random. The cos² of the principal angles follow the Jacobi
    ensemble: Var tr(P P′) = 2 m² (d - m)² / (d² (d - 1)(d + 2)).
    """
    if m == 0 or width < 2:
        return m / width, 0.0
    return m / width, (width - m) / width * float(np.sqrt(2 / ((width - 1) * (width + 2))))


def _cosine(left: np.ndarray, right: np.ndarray) -> float:
    left, right = left / (np.abs(left).max() or 1.0), right / np.abs(right).max()
    return float(left @ right / (np.linalg.norm(left) * np.linalg.norm(right) or 1.0))


@dataclass(frozen=True)
class Spread:
    """Statistics of log Z over n forecast positions, in nats.

    sd is the sample standard deviation, None for a single position. With no position, every field but n is
    None.
    """

    n: int
    mean: float | None
    sd: float | None
    low: float | None
    high: float | None
    range: float | None


def log_partition(logits: Float[np.ndarray, "*position id"]) -> Float[np.ndarray, "*position"]:
    """Return log Z(k, l) = log Σ_i exp z_i of the logits.

    The logits are used as emitted: all ids, after the model's own scaling. Source: Shelim et al. 2025,
    section 2. A logit of -inf (an excluded id) adds nothing. Constant logits z over n ids give z + log n.
    Raises ValueError for NaN or +inf, and for a position without any id above -inf.
    """
    values = np.asarray(logits, dtype=np.float64)
    if np.isnan(values).any() or np.isposinf(values).any():
        raise ValueError("logits: expected values below infinity and no NaN; check the weights and their dtype")
    largest = values.max(axis=-1, keepdims=True, initial=-np.inf)
    if np.isneginf(largest).any():
        raise ValueError("logits: expected at least one id above -inf at every position")
    return np.asarray(largest[..., 0] + np.log(np.exp(values - largest).sum(axis=-1)))


def partition_spread(log_z: Float[np.ndarray, "*position"]) -> Spread:
    """Compute the standard deviation and range of log Z over positions.

    Both are 0 where the partition function is stable. Source: Shelim et al. 2025, section 3. The paper
    discusses this stability and measures eq. 5 instead. A single position has no standard deviation (None).
    NaN gives NaN.
    """
    values = np.asarray(log_z, dtype=np.float64).reshape(-1)
    if not len(values):
        return Spread(0, None, None, None, None, None)
    low, high = float(values.min()), float(values.max())
    sd = float(values.std(ddof=1)) if len(values) > 1 else None
    return Spread(len(values), float(values.mean()), sd, low, high, high - low)


# Largest N d of an instance: its Jacobian is dense and takes 32 MiB in float64.
LARGEST = 2048


@dataclass(frozen=True)
class Bounds:
    """Jacobian norm ‖J‖₂ and three upper bounds: as printed, with Appendix B's N, and one that is proved."""

    norm: float
    printed: float
    appendix: float
    safe: float


def jacobian_bounds(states: States, interaction: Float[np.ndarray, "width width"]) -> Bounds:
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


def attention(states: States, interaction: Float[np.ndarray, "width width"]) -> Float[np.ndarray, "token token"]:
    """Return p_ij, the softmax over j of ψ_iᵀ Λ ψ_j."""
    scores = states @ interaction @ states.T
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    return np.asarray(weights / weights.sum(axis=1, keepdims=True))

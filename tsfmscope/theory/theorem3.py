"""Yu et al. 2026, Theorems 3 and 5: attention is compressible on low-rank inputs, not on high-rank ones."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from tsfmscope.theory.attention import Heads, attend, random_heads, softmax_columns
from tsfmscope.theory.bound_check import FORMS, BoundCheck, tightest_case
from tsfmscope.theory.matrices import orthonormal, random_spectrum, rounding_error, with_singular_values


class Input(NamedTuple):
    """Input U as distinct columns of Ξ and the number of times that each occurs."""

    # Shape [d, distinct].
    columns: np.ndarray
    times: np.ndarray
    kind: str

    @property
    def length(self) -> int:
        """Return the number of tokens L."""
        return int(self.times.sum())


def project_on_leading(heads: Heads, vocabulary: Float[np.ndarray, "width entry"], rank: int) -> Heads:
    """Return the proof's W̃ = W U_d̃ U_d̃ᵀ, U_d̃ the leading left singular vectors of Ξ.

    W_Q, W_K and W_V share one projection.
    """
    leading = np.linalg.svd(vocabulary, full_matrices=False)[0][:, :rank]
    return project(heads, leading)


def project(heads: Heads, leading: Float[np.ndarray, "width rank"]) -> Heads:
    """Multiply every matrix by the projection onto these orthonormal columns."""
    return Heads(*((matrix @ leading) @ leading.T for matrix in heads))


def error(heads: Heads, small: Heads, inputs: Input) -> float:
    """Return ‖MH-Attention(U; W) - MH-Attention(U; W̃)‖_F; equal columns of U are counted, not repeated."""
    difference = attend(inputs.columns, heads, inputs.times) - attend(inputs.columns, small, inputs.times)
    return float(np.sqrt((np.square(difference).sum(axis=0) * inputs.times).sum()))


def printed_bound(width: int, tail: float) -> float:
    """Return the printed bound O(√d σ_{d̃+1}) for C = 1, which is independent of L.

    Its constant is the one that the proof's own lines give (Yu et al. 2026, eqs. 12 to 14).
    """
    shift = 2 * tail + tail**2
    return math.sqrt(width) * math.e**2 * (tail + 2 * math.e * shift + shift**2)


def repaired_bound(width: int, tail: float, length: int, max_times: int) -> float:
    """Return √d σ_{d̃+1} min{3 √L, 3e √m} for C = 1.

    m is the largest number of occurrences of one column of Ξ in U. The proof bounds the norm of a sum of L
    vectors by √L times the largest norm. The correct factor is L, so the bound grows by a factor of √L.

    Reason for 3 √L: the error of a column is at most √d_h (max ‖Δ_t‖ + ‖g - g̃‖_1), and the softmax changes
    by ‖g - g̃‖_1 ≤ ‖Δ scores‖_∞ ≤ 2σ. Reason for 3e √m: with ‖Δ_U‖₂ ≤ √m σ, weights at most e²/L, and
    ‖Cov(u)‖ ≤ 1, each of value, key and query adds e √(m d) σ.
    """
    return math.sqrt(width) * tail * min(3 * math.sqrt(length), 3 * math.e * math.sqrt(max_times))


def compressible_instance(rng: np.random.Generator) -> dict[str, list[BoundCheck]]:
    """Check Theorem 3, part 1, with one head."""
    return {"Theorem 3.1": _compressible(rng, 1, int(rng.integers(3, 17)))}


def heads_instance(rng: np.random.Generator) -> dict[str, list[BoundCheck]]:
    """Check Theorem 5, the statement of Theorem 3, part 1, for several heads."""
    count = int(rng.integers(2, 5))
    return {"Theorem 5": _compressible(rng, count, count * int(rng.integers(2, 5)))}


def random_vocabulary(rng: np.random.Generator, width: int, entries: int) -> tuple[np.ndarray, str]:
    """Draw Ξ with a random spectrum and columns of norm at most C = 1.

    With probability 0.25, Ξ is the diagonal matrix of the proofs.
    """
    spectrum = random_spectrum(rng, width)
    if rng.random() < 0.25:
        return np.diag(spectrum.values), f"diagonal {spectrum.kind}"
    matrix = with_singular_values(rng, spectrum.values, width, entries)
    return matrix / np.linalg.norm(matrix, axis=0).max(), spectrum.kind


def random_input(rng: np.random.Generator, vocabulary: np.ndarray) -> Input:
    """Draw U: the whole vocabulary, columns drawn with replacement, or one column repeated many times."""
    entries = vocabulary.shape[1]
    kind = ("vocabulary", "drawn", "repeated")[rng.integers(3)]
    if kind == "vocabulary":
        return Input(vocabulary, np.ones(entries, dtype=np.int64), kind)
    if kind == "repeated":
        smallest = int(np.argmin(np.linalg.norm(vocabulary, axis=0)))
        return Input(vocabulary[:, [smallest]], np.array([int(2 ** rng.uniform(0, 24))]), kind)
    columns, times = np.unique(rng.integers(entries, size=int(2 ** rng.uniform(0, 9))), return_counts=True)
    return Input(vocabulary[:, columns], times, kind)


def _compressible(rng: np.random.Generator, count: int, width: int) -> list[BoundCheck]:
    entries = width + int(rng.integers(0, 33))
    vocabulary, case = random_vocabulary(rng, width, entries)
    inputs = random_input(rng, vocabulary)
    rank = int(rng.integers(1, width))
    size = width // count
    heads = random_heads(rng, count, width, value_norm=math.sqrt(size), score_norm=math.sqrt(size))
    tail = float(np.linalg.svd(vocabulary, compute_uv=False)[rank])
    # The hypothesis of the theorem is σ_{d̃+1} ≤ 1.
    while tail > 1:
        vocabulary, tail = vocabulary / 2, tail / 2
        inputs = inputs._replace(columns=inputs.columns / 2)
    y = error(heads, project_on_leading(heads, vocabulary, rank), inputs)
    max_times = int(inputs.times.max())
    setting = {"width": width, "entries": vocabulary.shape[1], "heads": count, "rank": rank, "length": inputs.length}
    setting |= {"most": max_times, "case": f"{inputs.kind}, {case}"}
    floor = rounding_error(math.sqrt(inputs.length * width), width, len(inputs.times))
    bounds = (printed_bound(width, tail), repaired_bound(width, tail, inputs.length, max_times))
    return [
        BoundCheck(form, "upper", tail, y, bound, floor, setting) for form, bound in zip(FORMS, bounds, strict=True)
    ]


def repeated_points(seed: int, *, width: int = 16, rank: int = 8, longest: int = 24) -> list[dict[str, float | bool]]:
    """Return the error against L for a U that repeats one column of Ξ = diag(σ) L times.

    σ_{d̃+1} is fixed, and the error grows as √L.
    """
    rng = np.random.default_rng([seed, 30])
    values = np.exp(-0.3 * np.arange(width))
    heads = random_heads(rng, 1, width, value_norm=math.sqrt(width), score_norm=math.sqrt(width))
    small = project_on_leading(heads, np.diag(values), rank)
    bound, points = printed_bound(width, float(values[rank])), []
    for power in range(0, longest + 1, 2):
        inputs = Input(np.diag(values)[:, [rank]], np.array([2**power]), "repeated")
        points.append({"x": 2.0**power, "y": error(heads, small, inputs), "fitted": True, "bound": bound})
    return points


def incompressible_instance(rng: np.random.Generator) -> dict[str, list[BoundCheck]]:
    """Check Theorem 3, part 2: the best W̃_V of rank d̃ against ¼ σ_{d̃+1}, at the tightest d̃ < d.

    printed: W_QᵀW_K = log(4d) σ_d⁻² √d I; repaired: log(4L) in place of log(4d). The proof's g_jj ≥ ½ needs L
    ≤ 4d + 1, whereas the theorem states any L ≥ d.
    """
    width = int(rng.integers(2, 17))
    length = int(width * 2 ** rng.uniform(0, 6))
    spectrum = random_spectrum(rng, width)
    value = orthonormal(rng, width, width)
    setting = {"width": width, "length": length, "case": spectrum.kind}
    ranks, sides = np.arange(1, width), []
    for form, inside in zip(FORMS, (4 * width, 4 * length), strict=True):
        outputs = value @ diagonal_attention(spectrum.values, length, math.log(inside))
        errors, floor = best_errors(outputs)[1:width], rounding_error(1.0, width, length)
        sides.append(tightest_case(form, "lower", ranks, errors, spectrum.values[1:] / 4, floor=floor, setting=setting))
    return {"Theorem 3.2": sides}


def diagonal_attention(
    values: Float[np.ndarray, " width"], length: int, strength: float
) -> Float[np.ndarray, "width token"]:
    """Return U softmax(T) of the construction: U = [diag(σ) 0], T = strength σ_d⁻² UᵀU."""
    inputs = np.zeros((len(values), length))
    np.fill_diagonal(inputs, values)
    return np.asarray(inputs @ softmax_columns(strength * (inputs / values[-1] ** 2).T @ inputs))


def best_errors(outputs: Float[np.ndarray, "width token"]) -> Float[np.ndarray, " rank"]:
    """Return min ‖(W_V - W̃_V) U G‖_F over W̃_V of rank d̃ = 0, 1, ...

    The minimum is given by Eckart-Young on W_V U G, whose rank is d.
    """
    squares = np.square(np.linalg.svd(outputs, compute_uv=False))
    return np.asarray(np.sqrt(np.cumsum(squares[::-1])[::-1]))

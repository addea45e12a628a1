"""Yu et al. 2026, Theorems 3 to 6 and Corollary 1: how attention keeps and lifts the rank.

- Theorems 3 and 5: attention is compressible on low-rank inputs, not on high-rank ones.
- Theorem 4 and Corollary 1: residual attention lifts small singular values.
- Theorem 6: a shared sketch loses σ_{d̃+1}, one sketch per head only σ_{hd̃+1}.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from tsfmscope.theory.instances import (
    FORMS,
    BoundCheck,
    Form,
    Heads,
    Side,
    attend,
    orthonormal,
    random_heads,
    random_spectrum,
    rounding_error,
    softmax_columns,
    tightest_case,
    with_singular_values,
)


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


def compression_error(heads: Heads, small: Heads, inputs: Input) -> float:
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


def several_heads_instance(rng: np.random.Generator) -> dict[str, list[BoundCheck]]:
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
    y = compression_error(heads, project_on_leading(heads, vocabulary, rank), inputs)
    max_times = int(inputs.times.max())
    setting = {"width": width, "entries": vocabulary.shape[1], "heads": count, "rank": rank, "length": inputs.length}
    setting |= {"most": max_times, "case": f"{inputs.kind}, {case}"}
    floor = rounding_error(math.sqrt(inputs.length * width), width, len(inputs.times))
    bounds = (printed_bound(width, tail), repaired_bound(width, tail, inputs.length, max_times))
    return [
        BoundCheck(form, "upper", tail, y, bound, floor, setting) for form, bound in zip(FORMS, bounds, strict=True)
    ]


def repeated_points(seed: int, *, width: int = 16, rank: int = 8, longest: int = 24) -> list[dict[str, float]]:
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
        points.append({"x": 2.0**power, "y": compression_error(heads, small, inputs), "bound": bound})
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


E2 = math.e**2
# The largest score of a column exceeds every other one by ln L plus this or more, so every other softmax weight of
# the column is at most about e^-60 / L.
SHARP = 60.0
Spectrum = Float[np.ndarray, " width"]


def upper_bound(values: Spectrum, heads: int, depth: float) -> Float[np.ndarray, " width"]:
    """Return the right side of eq. 5 for k = 1..d, without its factor 2.

    This is the minimum over j of σ_{k-j+1} + e² h/√D σ_{⌊(j-1)/h⌋+1}.
    """
    width, share = len(values), E2 * heads / math.sqrt(depth)
    best = []
    for k in range(1, width + 1):
        j = np.arange(1, k + 1)
        best.append((values[k - j] + share * values[(j - 1) // heads]).min())
    return np.array(best)


def lower_bound(values: Spectrum, heads: int, depth: float) -> Float[np.ndarray, " width"]:
    """Return the right side of eq. 6 for k = 1..d.

    It is the largest over all i ≤ h with ⌈k/i⌉ < d_h. The value is 0 where no such i exists.
    """
    width, size = len(values), len(values) // heads
    bound = np.zeros(width)
    for k in range(1, width + 1):
        for i in range(1, heads + 1):
            at = -(-k // i)
            if at < size:
                candidate = 0.25 * (values[(i - 1) * size + at - 1] + values[at - 1] / math.sqrt(depth))
                bound[k - 1] = max(bound[k - 1], candidate)
    return bound


def lifting_construction(values: Spectrum, heads: int, length: int) -> tuple[np.ndarray, Heads]:
    """Return U and the heads of the proof of eq. 6.

    W_V keeps d_h - 1 coordinates, and head i moves them to block i. U = [diag(σ) 0]. W_Q^(i) = α
    [diag(σ_1..σ_{d_h})⁻¹ 0]. W_K^(i) has the reciprocals of block i on its diagonal, and those of all other
    blocks in its last row. T^(i) is α times a matrix of zeros with a single 1 in each column k ≤ d; the last
    L - d columns are 0.
    """
    width = len(values)
    size = width // heads
    inputs = np.zeros((width, length))
    np.fill_diagonal(inputs, values)
    # `attend` divides by √d_h, the proof does not.
    alpha = (SHARP + math.log(length)) * math.sqrt(size)
    query, key, value = np.zeros((3, heads, size, width))
    for head in range(heads):
        block = np.arange(head * size, (head + 1) * size)
        others = np.delete(np.arange(width), block)
        query[head, :, :size] = alpha * np.diag(1 / values[:size])
        key[head, np.arange(size), block] = 1 / values[block]
        key[head, -1, others] = 1 / values[others]
        value[head, : size - 1, : size - 1] = np.eye(size - 1)
    return inputs, Heads(query, key, value)


def layer(inputs: Float[np.ndarray, "width token"], heads: Heads, depth: float) -> Spectrum:
    """Return the singular values of Z = U + MH-Attention(U)/√D."""
    return np.linalg.svd(inputs + attend(inputs, heads) / math.sqrt(depth), compute_uv=False)


def upper_instance(rng: np.random.Generator) -> dict[str, list[BoundCheck]]:
    """Check eq. 5 at its tightest k; the weights satisfy the hypotheses with equality, √D is at least 2e²h."""
    values, heads, inputs, setting = _random_layer(rng)
    least = (2 * E2 * heads.number) ** 2
    depth = float(math.ceil(least * (1 if rng.random() < 0.5 else 10 ** rng.uniform(0, 2))))
    output_values = layer(inputs, heads, depth)
    bound = 2 * upper_bound(values, heads.number, depth)
    ks, floor = np.arange(1, len(values) + 1), rounding_error(1.0, *inputs.shape)
    sides, setting = (output_values / output_values[0], bound), setting | {"depth": depth}
    return {"Theorem 4 eq. 5": [tightest_case("printed", "upper", ks, *sides, floor=floor, setting=setting)]}


def lower_instance(rng: np.random.Generator) -> dict[str, list[BoundCheck]]:
    """Check eq. 6 at its tightest k, with the proof's input and weights."""
    values, heads, length, setting = _random_shape(rng, fewest=1)
    inputs, lifting_heads = lifting_construction(values, heads, length)
    depth = float(math.ceil(10 ** rng.uniform(0, 4)))
    output_values = layer(inputs, lifting_heads, depth)
    bound = lower_bound(values, heads, depth)
    ks, floor = np.flatnonzero(bound) + 1, rounding_error(1.0, *inputs.shape)
    sides, setting = (output_values[ks - 1] / output_values[0], bound[ks - 1]), setting | {"depth": depth}
    return {"Theorem 4 eq. 6": [tightest_case("printed", "lower", ks, *sides, floor=floor, setting=setting)]}


def corollary_upper(values: Spectrum, heads: int, form: Form) -> Float[np.ndarray, " k"]:
    """Return (1 + e²h) σ_{⌊(k±1)/(h+1)⌋+1} for k = 1, 2, ..., with D = 1.

    The sign is + for printed and - for repaired; the constant is that of eq. 26. The proof's ((hk+1)/(h+1) -
    1)/h equals (k-1)/(h+1), not (k+1)/(h+1). A U of rank r gives a Z of rank up to (h+1) r. With the printed
    index, σ_{(h+1)r}(Z) and the singular value before it would vanish together with σ_{r+1}.
    """
    at = (np.arange(1, len(values) + 1) + (1 if form == "printed" else -1)) // (heads + 1)
    return (1 + E2 * heads) * values[at[at < len(values)]]


def corollary_lower(values: Spectrum, heads: int, form: Form) -> Float[np.ndarray, " k"]:
    """Return 4/5 σ_{⌈k/h⌉} for k up to d - d_h (printed) or d - h (repaired).

    The proof of eq. 6 bounds σ_k(Z) with the constant 4/5 and σ_1(Z) by 16/5; their ratio is the ¼ of eq. 6.
    Corollary 1 bounds σ_k(Z) itself. Eq. 6 at i = h needs ⌈k/h⌉ < d_h, which k ≤ d - d_h does not imply where
    d_h < h.
    """
    width = len(values)
    last = width - width // heads if form == "printed" else width - heads
    ks = np.arange(1, last + 1)
    return 0.8 * values[-(-ks // heads) - 1]


def corollary_upper_instance(rng: np.random.Generator) -> dict[str, list[BoundCheck]]:
    """Check Corollary 1's upper bound at its tightest k, D = 1."""
    values, heads, inputs, setting = _random_layer(rng)
    right = partial(corollary_upper, values, heads.number)
    return {"Corollary 1 upper": _both(right, layer(inputs, heads, 1.0), "upper", inputs.shape, setting)}


def corollary_lower_instance(rng: np.random.Generator) -> dict[str, list[BoundCheck]]:
    """Check Corollary 1's lower bound at its tightest k, D = 1, with the proof's input and weights."""
    values, heads, length, setting = _random_shape(rng, fewest=2)
    inputs, lifting_heads = lifting_construction(values, heads, length)
    right = partial(corollary_lower, values, heads)
    return {"Corollary 1 lower": _both(right, layer(inputs, lifting_heads, 1.0), "lower", inputs.shape, setting)}


def _both(
    right: Callable[[Form], np.ndarray], values: Spectrum, side: Side, shape: tuple, setting: dict
) -> list[BoundCheck]:
    sides, floor = [], rounding_error(float(values[0]), *shape)
    for form in FORMS:
        bound = right(form)
        ks = np.arange(1, len(bound) + 1)
        sides.append(tightest_case(form, side, ks, values[: len(bound)], bound, floor=floor, setting=setting))
    return sides


def _random_shape(rng: np.random.Generator, *, fewest: int) -> tuple[np.ndarray, int, int, dict]:
    """Draw a spectrum, the number of heads (at least `fewest`), L, and the setting.

    d_h is at least 2, because the proof's W_V would otherwise be 0.
    """
    heads, size = int(rng.integers(fewest, 7)), int(rng.integers(2, 9))
    width = heads * size
    spectrum = random_spectrum(rng, width)
    length = width + int(rng.integers(0, 33))
    return spectrum.values, heads, length, {"width": width, "heads": heads, "length": length, "case": spectrum.kind}


def _random_layer(rng: np.random.Generator) -> tuple[np.ndarray, Heads, np.ndarray, dict]:
    """Draw an input with a random spectrum and Gaussian heads.

    σ_1 = 1 for the input, and ‖W_QᵀW_K‖ = √d_h and ‖W_V‖ = 1 for every head.
    """
    count, size = int(rng.integers(1, 6)), int(rng.integers(1, 7))
    width = max(2, count * size)
    size = width // count
    spectrum = random_spectrum(rng, width)
    length = width + int(rng.integers(0, 33))
    heads = random_heads(rng, count, width, value_norm=1.0, score_norm=math.sqrt(size))
    inputs = with_singular_values(rng, spectrum.values, width, length)
    return spectrum.values, heads, inputs, {"width": width, "heads": count, "length": length, "case": spectrum.kind}


class Construction(NamedTuple):
    """Input and weights of the proof.

    U = [diag(interleaved σ) 0]. Every head has the same sharp W_Q and W_K. W_V = I.
    """

    # Shape [d, L].
    inputs: np.ndarray
    # σ^(1), ..., σ^(h), shape [d].
    diagonal: np.ndarray
    # v_j^(i) as columns, shape [d_h, d].
    vectors: np.ndarray
    alpha: float
    heads: Heads


def construct(rng: np.random.Generator, values: Float[np.ndarray, " width"], heads: int, length: int) -> Construction:
    """Build the proof's input and weights.

    Raises ValueError for d_h < 2, where no two unit vectors have |v·v'| < 1.
    """
    width = len(values)
    size = width // heads
    if size < 2:
        raise ValueError(f"heads: got {heads} for width {width}, expected at least 2 dimensions per head")
    # σ^(i)_j = σ_{(j-1)h+i}
    diagonal = values.reshape(size, heads).T.ravel()
    vectors = spread_vectors(rng, size, width)
    # The diagonal becomes 1; it is left out below.
    products = np.abs(vectors.T @ vectors - 2 * np.eye(width))
    closest = float(products[~np.eye(width, dtype=bool)].max())
    alpha = math.sqrt((SHARP + math.log(length)) * math.sqrt(size) / (1 - closest))
    inputs = np.zeros((width, length))
    np.fill_diagonal(inputs, diagonal)
    sharp, identity = np.repeat((alpha * vectors / diagonal)[None], heads, axis=0), np.eye(width)
    return Construction(inputs, diagonal, vectors, alpha, Heads(sharp, sharp, identity.reshape(heads, size, width)))


def spread_vectors(rng: np.random.Generator, size: int, count: int) -> Float[np.ndarray, "size count"]:
    """Draw unit vectors of which no two are parallel.

    For d_h = 2 their angles are evenly spaced, in a random order; otherwise the vectors are random.
    """
    if size == 2:
        angles = np.pi * (rng.permutation(count) + rng.random()) / count
        return np.stack([np.cos(angles), np.sin(angles)])
    vectors = rng.standard_normal((size, count))
    return np.asarray(vectors / np.linalg.norm(vectors, axis=0))


def sketch_heads(construction: Construction, rank: int, form: Form) -> Heads:
    """Return W̃_Q, W̃_K and W̃_V of claim 2.

    Head i keeps the first d̃ coordinates of its block; all other coordinates share one vector. printed: that
    vector is v_1 of the next head, i' = mod(i, h) + 1. For h = 1 this is the head's own v_1, so the softmax
    mixes coordinates that must stay separate. repaired: that vector is v_{d̃+1} of the head itself, for every
    h.
    """
    count, size, width = construction.heads.value.shape
    query, key, value = np.zeros((3, count, size, width))
    for head in range(count):
        own_columns = np.arange(head * size, head * size + rank)
        others = np.setdiff1d(np.arange(width), own_columns)
        extra = construction.vectors[:, head * size + rank if form == "repaired" else ((head + 1) % count) * size]
        own = construction.alpha * construction.vectors[:, own_columns] / construction.diagonal[own_columns]
        # Position d̃ + 1 for the first head, 1 for the others.
        first = others[0]
        query[head][:, own_columns], key[head][:, own_columns] = own, own
        query[head][:, first] = construction.alpha * extra / construction.diagonal[first]
        key[head][:, others] = construction.alpha * extra[:, None] / construction.diagonal[others]
        value[head, np.arange(rank), own_columns] = 1.0
    return Heads(query, key, value)


def best_shared(construction: Construction) -> Float[np.ndarray, " rank"]:
    """Return min ‖MH-Attention(W_V) - MH-Attention(W̃_V)‖₂ over W̃_V of rank d̃ = 0, 1, ...

    The minima are the singular values of U G: all heads have the same G, so the output is W_V U G, and
    Eckart-Young applies. The theorem's limit on ‖W̃_V‖_F is ignored; it could only raise the minimum.
    """
    return np.linalg.svd(attend(construction.inputs, construction.heads), compute_uv=False)


def sketch_error(construction: Construction, rank: int, form: Form) -> float:
    """Return ‖MH-Attention(W) - MH-Attention(W̃)‖₂ of claim 2."""
    heads = construction.heads, sketch_heads(construction, rank, form)
    full, small = (attend(construction.inputs, one) for one in heads)
    return float(np.linalg.norm(full - small, 2))


def sketch_instance(rng: np.random.Generator) -> dict[str, list[BoundCheck]]:
    """Check both claims at one construction.

    The first claim is checked at its tightest d̃, the second at a random d̃ < d_h.
    """
    heads, size = int(rng.integers(1, 6)), int(rng.integers(2, 7))
    width = heads * size
    length = width + int(rng.integers(0, 33))
    spectrum = random_spectrum(rng, width)
    construction = construct(rng, spectrum.values, heads, length)
    setting = {"width": width, "heads": heads, "length": length, "case": spectrum.kind}
    ranks, floor = np.arange(1, size), rounding_error(1.0, width, length)
    sides = best_shared(construction)[ranks], spectrum.values[ranks] / 2
    first_claim = tightest_case("printed", "lower", ranks, *sides, floor=floor, setting=setting)
    rank = int(rng.integers(1, size))
    right, claim_setting = 4 * math.sqrt(heads) * float(spectrum.values[heads * rank]), setting | {"rank": rank}
    second_claim = [
        BoundCheck(form, "upper", rank, sketch_error(construction, rank, form), right, floor, claim_setting)
        for form in FORMS
    ]
    return {"Theorem 6.1": [first_claim], "Theorem 6.2": second_claim}

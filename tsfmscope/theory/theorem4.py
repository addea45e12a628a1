"""Yu et al. 2026, Theorem 4 and Corollary 1: how much residual attention lifts small singular values."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Literal

import numpy as np
from jaxtyping import Float

from tsfmscope.theory.attention import Heads, attend, random_heads
from tsfmscope.theory.bound_check import FORMS, BoundCheck, Form, tightest_case
from tsfmscope.theory.matrices import random_spectrum, rounding_error, with_singular_values

E2 = math.e**2
# In each column of T that has a 1, its score is ln L plus this, and all other scores are 0. Every other
# softmax weight of the column is then about e^-60 / L.
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
    side = tightest_case(
        "printed", "upper", ks, output_values / output_values[0], bound, floor=floor, setting=setting | {"depth": depth}
    )
    return {"Theorem 4 eq. 5": [side]}


def lower_instance(rng: np.random.Generator) -> dict[str, list[BoundCheck]]:
    """Check eq. 6 at its tightest k, with the proof's input and weights."""
    values, heads, length, setting = _random_shape(rng, fewest=1)
    inputs, lifting_heads = lifting_construction(values, heads, length)
    depth = float(math.ceil(10 ** rng.uniform(0, 4)))
    output_values = layer(inputs, lifting_heads, depth)
    bound = lower_bound(values, heads, depth)
    ks, floor = np.flatnonzero(bound) + 1, rounding_error(1.0, *inputs.shape)
    sides = output_values[ks - 1] / output_values[0], bound[ks - 1]
    return {
        "Theorem 4 eq. 6": [
            tightest_case("printed", "lower", ks, *sides, floor=floor, setting=setting | {"depth": depth})
        ]
    }


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
    right: Callable[[Form], np.ndarray], values: Spectrum, side: Literal["upper", "lower"], shape: tuple, setting: dict
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

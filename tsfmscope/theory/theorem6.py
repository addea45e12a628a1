"""Yu et al. 2026, Theorem 6: a shared sketch loses σ_{d̃+1}, one sketch per head only σ_{hd̃+1}."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from tsfmscope.theory.attention import Heads, attend
from tsfmscope.theory.bound_check import FORMS, BoundCheck, Form, tightest_case
from tsfmscope.theory.matrices import random_spectrum, rounding_error

# In the first d columns of the construction's softmax, the largest score exceeds every other score by
# ln L plus this or more, so every other weight is at most e^-60 / L.
SHARP = 60.0


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
    sharp = np.repeat((alpha * vectors / diagonal)[None], heads, axis=0)
    return Construction(
        inputs, diagonal, vectors, alpha, Heads(sharp, sharp, np.eye(width).reshape(heads, size, width))
    )


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
    full, small = (
        attend(construction.inputs, construction.heads),
        attend(construction.inputs, sketch_heads(construction, rank, form)),
    )
    return float(np.linalg.norm(full - small, 2))


def heads_instance(rng: np.random.Generator) -> dict[str, list[BoundCheck]]:
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
    best_shared_errors = best_shared(construction)[ranks]
    first_claim = tightest_case(
        "printed", "lower", ranks, best_shared_errors, spectrum.values[ranks] / 2, floor=floor, setting=setting
    )
    rank = int(rng.integers(1, size))
    right, claim_setting = 4 * math.sqrt(heads) * float(spectrum.values[heads * rank]), setting | {"rank": rank}
    second_claim = [
        BoundCheck(form, "upper", rank, sketch_error(construction, rank, form), right, floor, claim_setting)
        for form in FORMS
    ]
    return {"Theorem 6.1": [first_claim], "Theorem 6.2": second_claim}

"""Appendix J.3: with more heads, one residual attention layer lifts more singular values."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from jaxtyping import Float

from tasks.theory.attention import Heads, attend, product_norms, split
from tasks.theory.matrices import decaying, with_singular_values

HEADS = (1, 2, 4, 8, 16, 32, 64)  # the paper prints no sizes for J.3: J.1's width, ours
DECAY = 20.0  # singular values from e^0 to e^-20; the paper says "exponentially decaying" only
EPSILON = 1e-3  # of the ε-rank that is fitted
SPREAD = 1.0  # standard deviation of the scores where they are spread
Scores = Literal["spread", "bounded"]


def scaled(
    matrices: Float[np.ndarray, "qkv width width"], heads: int, inputs: Float[np.ndarray, "width token"], scores: Scores
) -> Heads:
    """Whole Gaussian matrices as h heads with ‖W_V‖₂ = 1 in each.

    bounded: ‖W_QᵀW_K‖ = √d_h, Theorem 4's hypothesis, which keeps all scores in [-1, 1]. spread: scores of standard
    deviation SPREAD, as attention that looks somewhere has them; then the hypothesis does not hold.
    """
    made = split(heads, *matrices)
    norms = np.linalg.norm(made.value, 2, axis=(1, 2))[:, None, None]
    size = made.value.shape[1]
    if scores == "bounded":
        factor = math.sqrt(size) / product_norms(made)
    else:
        found = np.swapaxes(made.query @ inputs, 1, 2) @ (made.key @ inputs)
        factor = SPREAD * math.sqrt(size) / found.std(axis=(1, 2))
    return Heads(made.query * factor[:, None, None], made.key, made.value / norms)


def layer_values(inputs: Float[np.ndarray, "width token"], heads: Heads) -> Float[np.ndarray, " width"]:
    """Relative singular values of MH-Attention(X) + X."""
    values = np.linalg.svd(inputs + attend(inputs, heads), compute_uv=False)
    relative: np.ndarray = values / values[0]
    return relative


def flow_points(
    seed: int,
    *,
    width: int = 512,
    columns: int = 1024,
    heads: Sequence[int] = HEADS,
    scores: Scores = "spread",
) -> list[dict[str, Any]]:
    """ε-rank of MH-Attention(X) + X for every h; the same X and W_Q, W_K, W_V, cut into ever more heads.

    `values`: the relative singular values, for a picture.
    """
    rng = np.random.default_rng([seed, 34])
    inputs = with_singular_values(rng, decaying(width, DECAY), width, columns)
    matrices = rng.standard_normal((3, width, width))
    found = []
    for count in heads:
        values = layer_values(inputs, scaled(matrices, count, inputs, scores))
        found.append({"heads": count, "x": float(count), "y": float((values > EPSILON).sum()), "values": values})
    return found

"""Yu et al. 2026, Appendix J.3: with more heads, one residual attention layer lifts more singular values."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from jaxtyping import Float

from tsfmscope.theory.attention import Heads, attend, product_norms, split
from tsfmscope.theory.matrices import exponential_values, with_singular_values

# Singular values decay from e^0 to e^-20; the paper only says "exponentially decaying".
DECAY = 20.0
# Tolerance of the numerical rank that is fitted.
EPSILON = 1e-3
# Standard deviation of the scores in the case "spread".
SPREAD = 1.0
Scores = Literal["spread", "bounded"]


def scale_heads(
    matrices: Float[np.ndarray, "qkv width width"], heads: int, inputs: Float[np.ndarray, "width token"], scores: Scores
) -> Heads:
    """Return whole Gaussian matrices as h heads with ‖W_V‖₂ = 1 in each head.

    bounded: ‖W_QᵀW_K‖ = √d_h, the hypothesis of Theorem 4, which keeps all scores in [-1, 1]. spread: scores
    have standard deviation SPREAD, as in attention that prefers some tokens; the hypothesis then does not
    hold.
    """
    split_heads = split(heads, *matrices)
    norms = np.linalg.norm(split_heads.value, 2, axis=(1, 2))[:, None, None]
    size = split_heads.value.shape[1]
    if scores == "bounded":
        factor = math.sqrt(size) / product_norms(split_heads)
    else:
        logits = np.swapaxes(split_heads.query @ inputs, 1, 2) @ (split_heads.key @ inputs)
        factor = SPREAD * math.sqrt(size) / logits.std(axis=(1, 2))
    return Heads(split_heads.query * factor[:, None, None], split_heads.key, split_heads.value / norms)


def layer_values(inputs: Float[np.ndarray, "width token"], heads: Heads) -> Float[np.ndarray, " width"]:
    """Return the singular values of MH-Attention(X) + X, relative to the largest."""
    values = np.linalg.svd(inputs + attend(inputs, heads), compute_uv=False)
    relative: np.ndarray = values / values[0]
    return relative


def flow_points(
    seed: int,
    *,
    width: int,
    columns: int,
    heads: Sequence[int],
    scores: Scores = "spread",
) -> list[dict[str, Any]]:
    """Return the numerical rank of MH-Attention(X) + X for every number of heads h.

    X, W_Q, W_K and W_V are the same for every h; the matrices are split into more heads. `values` of each
    point: the relative singular values, for a figure.
    """
    rng = np.random.default_rng([seed, 34])
    inputs = with_singular_values(rng, exponential_values(width, DECAY), width, columns)
    matrices = rng.standard_normal((3, width, width))
    points = []
    for count in heads:
        values = layer_values(inputs, scale_heads(matrices, count, inputs, scores))
        points.append({"heads": count, "x": float(count), "y": float((values > EPSILON).sum()), "values": values})
    return points

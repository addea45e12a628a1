"""Attention in the notation of Yu et al. 2026: columns are tokens, the softmax runs down each column."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from tsfmscope.theory.matrices import gaussian_with_norm


class Heads(NamedTuple):
    """W_Q, W_K and W_V of every head, each [head, d_h, d]; eq. 18 stacks them."""

    query: np.ndarray
    key: np.ndarray
    value: np.ndarray

    @property
    def number(self) -> int:
        """Return the number of heads h."""
        return len(self.query)


def softmax_columns(
    scores: Float[np.ndarray, "*head token column"], times: Int[np.ndarray, " token"] | None = None
) -> Float[np.ndarray, "*head token column"]:
    """Compute the softmax over the tokens of each column.

    times: number of occurrences of each token in the input, 1 by default. A token that occurs m times adds m
    e^score to the sum and has m e^score as numerator: the weight of all its copies together. An input of
    millions of columns therefore costs only as much as its distinct columns.
    """
    weights = np.exp(scores - scores.max(axis=-2, keepdims=True))
    if times is not None:
        weights = weights * times[:, None]
    return np.asarray(weights / weights.sum(axis=-2, keepdims=True))


def attend(
    inputs: Float[np.ndarray, "width token"], heads: Heads, times: Int[np.ndarray, " token"] | None = None
) -> Float[np.ndarray, "row token"]:
    """Return MH-Attention(U; W_Q, W_K, W_V, h): the outputs of all heads, stacked to [h d_h, L].

    Source: Yu et al. 2026, eq. 18. Scores are divided by sqrt(d_h), d_h the number of rows of a head's W_V
    (footnote 2). times: as in `softmax_columns`; the result then has one column per distinct token.
    """
    scale = np.sqrt(heads.value.shape[1])
    scores = np.swapaxes(heads.query @ inputs, 1, 2) @ (heads.key @ inputs) / scale  # [h, L, L]
    outputs: np.ndarray = (heads.value @ inputs) @ softmax_columns(scores, times)
    return outputs.reshape(-1, inputs.shape[1])


def random_heads(rng: np.random.Generator, count: int, width: int, *, value_norm: float, score_norm: float) -> Heads:
    """Draw Gaussian heads with ‖W_Qᵀ W_K‖₂ = score_norm and ‖W_V‖₂ = value_norm in each head.

    The hypotheses of the theorems then hold with equality.
    """
    size = width // count
    query, key = rng.standard_normal((2, count, size, width))
    value = np.stack([gaussian_with_norm(rng, size, width, value_norm) for _ in range(count)])
    heads = Heads(query, key, value)
    return heads._replace(query=query * (score_norm / product_norms(heads))[:, None, None])


def product_norms(heads: Heads) -> Float[np.ndarray, " head"]:
    """Return ‖W_Qᵀ W_K‖₂ of every head.

    The norm is that of the d_h x d_h product of the R factors of W_Qᵀ and W_Kᵀ.
    """
    query, key = (np.linalg.qr(np.swapaxes(matrix, 1, 2), mode="r") for matrix in (heads.query, heads.key))
    return np.asarray(np.linalg.norm(query @ np.swapaxes(key, 1, 2), 2, axis=(1, 2)))


def split(count: int, query: np.ndarray, key: np.ndarray, value: np.ndarray) -> Heads:
    """Split whole matrices [d, d] into heads of d / h rows each.

    Raises ValueError where h does not divide d.
    """
    if query.shape[0] % count:
        raise ValueError(f"heads: got {count}, expected a divisor of the width {query.shape[0]}")
    return Heads(*(matrix.reshape(count, -1, matrix.shape[1]) for matrix in (query, key, value)))

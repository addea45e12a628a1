"""Attention as rank_structure.md writes it: columns are tokens, the softmax runs down each column."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from tasks.theory.matrices import bounded


class Heads(NamedTuple):
    """W_Q, W_K and W_V of every head, [head, d_h, d]; eq. 18 stacks them."""

    query: np.ndarray
    key: np.ndarray
    value: np.ndarray

    @property
    def number(self) -> int:
        """h"""
        return len(self.query)


def softmax_columns(
    scores: Float[np.ndarray, "*head token column"], times: Int[np.ndarray, " token"] | None = None
) -> Float[np.ndarray, "*head token column"]:
    """Softmax over the tokens of each column. times: how often each token stands in the input, 1 by default.

    A token that stands m times has m e^score in numerator and sum: the weight of all its copies together, so that an
    input of millions of columns costs what its distinct columns cost.
    """
    weights = np.exp(scores - scores.max(axis=-2, keepdims=True))
    if times is not None:
        weights = weights * times[:, None]
    shares: np.ndarray = weights / weights.sum(axis=-2, keepdims=True)
    return shares


def attend(
    inputs: Float[np.ndarray, "width token"], heads: Heads, times: Int[np.ndarray, " token"] | None = None
) -> Float[np.ndarray, "row token"]:
    """MH-Attention(U; W_Q, W_K, W_V, h), eq. 18: the heads' outputs one below another, [h d_h, L].

    Scores are divided by sqrt(d_h), d_h the rows of a head's W_V (footnote 2). times: as in `softmax_columns`; the
    answer then has one column a distinct token.
    """
    scale = np.sqrt(heads.value.shape[1])
    scores = np.swapaxes(heads.query @ inputs, 1, 2) @ (heads.key @ inputs) / scale  # [h, L, L]
    outputs: np.ndarray = (heads.value @ inputs) @ softmax_columns(scores, times)
    return outputs.reshape(-1, inputs.shape[1])


def random_heads(rng: np.random.Generator, count: int, width: int, *, value_norm: float, score_norm: float) -> Heads:
    """Gaussian heads with ‖W_Qᵀ W_K‖₂ = score_norm and ‖W_V‖₂ = value_norm in each: equality in the hypotheses."""
    size = width // count
    query, key = rng.standard_normal((2, count, size, width))
    value = np.stack([bounded(rng, size, width, value_norm) for _ in range(count)])
    made = Heads(query, key, value)
    return made._replace(query=query * (score_norm / product_norms(made))[:, None, None])


def product_norms(heads: Heads) -> Float[np.ndarray, " head"]:
    """‖W_Qᵀ W_K‖₂ of every head, of the d_h x d_h product of the R factors of W_Qᵀ and W_Kᵀ."""
    query, key = (np.linalg.qr(np.swapaxes(one, 1, 2), mode="r") for one in (heads.query, heads.key))
    norms: np.ndarray = np.linalg.norm(query @ np.swapaxes(key, 1, 2), 2, axis=(1, 2))
    return norms


def split(heads: int, query: np.ndarray, key: np.ndarray, value: np.ndarray) -> Heads:
    """Whole matrices [d, d] as heads of d / h rows each. Raises ValueError where h does not divide d."""
    if query.shape[0] % heads:
        raise ValueError(f"heads: got {heads}, expected a divisor of the width {query.shape[0]}")
    return Heads(*(one.reshape(heads, -1, one.shape[1]) for one in (query, key, value)))

"""Appendix J.1: the error of attention on projected matrices against σ_{d̃+1}, and against the width."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from tasks.theory.attention import random_heads
from tasks.theory.matrices import decaying, orthonormal

DECAY = 5.0  # singular values from e^0 to e^-5 (Appendix J.1)
BLOCK = 1024  # columns of scores held at a time


def projected_errors(
    left: Float[np.ndarray, "width width"],
    values: Float[np.ndarray, " width"],
    right: Float[np.ndarray, "entry width"],
    interaction: Float[np.ndarray, "width width"],
    value: Float[np.ndarray, "width width"],
    ranks: Sequence[int],
) -> list[float]:
    """‖Attention(X; W) - Attention(X; W̃)‖_F for every d̃ of `ranks`, X = left diag(values) rightᵀ the whole vocabulary.

    interaction: W_QᵀW_K. W̃ = W U_d̃ U_d̃ᵀ as in the proof of Theorem 3: in the basis of `left` that drops rows of
    diag(values) rightᵀ, so that nothing is decomposed again. Scores are made BLOCK columns at a time.
    """
    rows = values[:, None] * right.T  # X in the basis of left  [d, N]
    mixing = left.T @ interaction @ left / math.sqrt(len(values))
    mapped = value @ left
    squares = np.zeros(len(ranks))
    for start in range(0, rows.shape[1], BLOCK):
        some = rows[:, start : start + BLOCK]
        whole = mapped @ (rows @ _weights(rows, mixing @ some))
        for place, rank in enumerate(ranks):
            kept = rows[:rank]
            weights = _weights(kept, mixing[:rank, :rank] @ some[:rank])
            squares[place] += np.square(whole - mapped[:, :rank] @ (kept @ weights)).sum()
    return [float(one) for one in np.sqrt(squares)]


def rank_points(seed: int, *, width: int = 512, columns: int = 4096, points: int = 24) -> list[dict[str, float | bool]]:
    """Error against σ_{d̃+1} at `points` ranks d̃ evenly among 1..d-1; `fitted` where d̃ ≤ d/2 (science.md 4).

    Beyond, few singular values are left behind σ_{d̃+1}, and the line bends. The paper takes every d̃.
    """
    rng = np.random.default_rng([seed, 31])
    values = decaying(width, DECAY)
    ranks = np.unique(np.linspace(1, width - 1, min(points, width - 1)).round().astype(int)).tolist()
    errors = projected_errors(*_vocabulary(rng, values, columns), *_weights_of(rng, width), ranks)
    return [
        {"rank": rank, "x": float(values[rank]), "y": y, "fitted": 2 * rank <= width}
        for rank, y in zip(ranks, errors, strict=True)
    ]


def width_points(
    seed: int, *, widths: Sequence[int] = (64, 128, 256, 512), columns: int = 4096, kept: int = 16
) -> list[dict[str, float | bool]]:
    """Error against d at one d̃ = `kept`; weights and X are drawn again at every d, its leading singular values stay.

    They fall by the same factor from one to the next at every width: e^-5 at the end of the narrowest.
    """
    found = []
    for width in widths:
        rng = np.random.default_rng([seed, 32, width])
        values = np.exp(-DECAY * np.arange(width) / (min(widths) - 1))
        (y,) = projected_errors(*_vocabulary(rng, values, columns), *_weights_of(rng, width), [kept])
        found.append({"rank": kept, "x": float(width), "y": y, "fitted": True})
    return found


def _vocabulary(
    rng: np.random.Generator, values: np.ndarray, columns: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return orthonormal(rng, len(values), len(values)), values, orthonormal(rng, columns, len(values))


def _weights_of(rng: np.random.Generator, width: int) -> tuple[np.ndarray, np.ndarray]:
    """W_QᵀW_K and W_V of one Gaussian head, both of norm √d: equality in the hypotheses with C = 1."""
    heads = random_heads(rng, 1, width, value_norm=math.sqrt(width), score_norm=math.sqrt(width))
    return heads.query[0].T @ heads.key[0], heads.value[0]


def _weights(rows: np.ndarray, keys: np.ndarray) -> np.ndarray:
    """Softmax of rowsᵀ keys down each column, in place: N x BLOCK is what costs memory."""
    scores: np.ndarray = rows.T @ keys
    scores -= scores.max(axis=0)
    np.exp(scores, out=scores)
    scores /= scores.sum(axis=0)
    return scores

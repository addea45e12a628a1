"""Yu et al. 2026, Appendix J.1: error of attention with projected weights, against σ_{d̃+1} and width."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from tsfmscope.theory.attention import random_heads
from tsfmscope.theory.matrices import exponential_values, orthonormal

# Singular values decay from e^0 to e^-5 (Yu et al. 2026, Appendix J.1).
DECAY = 5.0
# Number of columns of scores in memory at once.
BLOCK = 1024


def projected_errors(
    left: Float[np.ndarray, "width width"],
    values: Float[np.ndarray, " width"],
    right: Float[np.ndarray, "entry width"],
    interaction: Float[np.ndarray, "width width"],
    value: Float[np.ndarray, "width width"],
    ranks: Sequence[int],
) -> list[float]:
    """Return ‖Attention(X; W) - Attention(X; W̃)‖_F for every d̃ in `ranks`.

    X = left diag(values) rightᵀ is the whole vocabulary. interaction: W_QᵀW_K. W̃ = W U_d̃ U_d̃ᵀ as in the
    proof of Theorem 3 of Yu et al. 2026. In the basis of `left`, this projection drops rows of diag(values)
    rightᵀ, so no further decomposition is needed. Scores are computed for BLOCK columns at a time.
    """
    # X in the basis of `left`, [d, N].
    rows = values[:, None] * right.T
    mixing = left.T @ interaction @ left / math.sqrt(len(values))
    mapped = value @ left
    squares = np.zeros(len(ranks))
    for start in range(0, rows.shape[1], BLOCK):
        block = rows[:, start : start + BLOCK]
        exact = mapped @ (rows @ _weights(rows, mixing @ block))
        for index, rank in enumerate(ranks):
            leading = rows[:rank]
            weights = _weights(leading, mixing[:rank, :rank] @ block[:rank])
            squares[index] += np.square(exact - mapped[:, :rank] @ (leading @ weights)).sum()
    return [float(square) for square in np.sqrt(squares)]


def rank_points(seed: int, *, width: int, columns: int, points: int) -> list[dict[str, float | bool]]:
    """Return the error against σ_{d̃+1} at `points` ranks d̃, spaced evenly in 1..d-1.

    `fitted` is true where d̃ ≤ d/2. At larger d̃, few singular values remain after σ_{d̃+1}, and the line
    bends. Yu et al. 2026 use every d̃.
    """
    rng = np.random.default_rng([seed, 31])
    values = exponential_values(width, DECAY)
    ranks = np.unique(np.linspace(1, width - 1, min(points, width - 1)).round().astype(int)).tolist()
    errors = projected_errors(*_vocabulary(rng, values, columns), *_weights_of(rng, width), ranks)
    return [
        {"rank": rank, "x": float(values[rank]), "y": y, "fitted": 2 * rank <= width}
        for rank, y in zip(ranks, errors, strict=True)
    ]


def width_points(seed: int, *, widths: Sequence[int], columns: int, rank: int) -> list[dict[str, float | bool]]:
    """Return the error against d at one d̃ = `rank`.

    Weights and X are drawn again at every d; the leading singular values of X stay the same. Consecutive
    singular values have the same ratio at every width, and the last one of the narrowest X is e^-5.
    """
    rows = []
    for width in widths:
        rng = np.random.default_rng([seed, 32, width])
        values = np.exp(-DECAY * np.arange(width) / (min(widths) - 1))
        (y,) = projected_errors(*_vocabulary(rng, values, columns), *_weights_of(rng, width), [rank])
        rows.append({"rank": rank, "x": float(width), "y": y, "fitted": True})
    return rows


def _vocabulary(
    rng: np.random.Generator, values: np.ndarray, columns: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return orthonormal(rng, len(values), len(values)), values, orthonormal(rng, columns, len(values))


def _weights_of(rng: np.random.Generator, width: int) -> tuple[np.ndarray, np.ndarray]:
    """Return W_QᵀW_K and W_V of one Gaussian head, both of norm √d: equality in the hypotheses with C = 1."""
    heads = random_heads(rng, 1, width, value_norm=math.sqrt(width), score_norm=math.sqrt(width))
    return heads.query[0].T @ heads.key[0], heads.value[0]


def _weights(rows: np.ndarray, keys: np.ndarray) -> np.ndarray:
    """Return the softmax of rowsᵀ keys down each column.

    It is computed in place, because the N x BLOCK array dominates memory.
    """
    scores: np.ndarray = rows.T @ keys
    scores -= scores.max(axis=0)
    np.exp(scores, out=scores)
    scores /= scores.sum(axis=0)
    return scores

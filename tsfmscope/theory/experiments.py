"""Statements of Yu et al. 2026 at random instances, and experiments of Appendix J and of rates.

- J.1: error of attention with projected weights, against σ_{d̃+1} and width.
- J.2: loss of an input's row space under a sparse sketch (eq. 30).
- J.3: with more heads, one residual attention layer lifts more singular values.

The rates show what a count of violations cannot. Seed and number reproduce an instance of a statement.

A row has experiment, x and y. `fitted` tells whether the point is used for the slope of its `scale` (log-log:
ln y against ln x; log-linear: ln y against x). `claimed` is the slope that Yu et al. 2026 state or imply.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal

import numpy as np
from jaxtyping import Float

from tsfmscope.theory import attention_theorems, embedding_theorems
from tsfmscope.theory.attention_theorems import repeated_points
from tsfmscope.theory.embedding_theorems import BETAS, radius, rate_points
from tsfmscope.theory.instances import (
    BoundCheck,
    Heads,
    attend,
    exponential_values,
    orthonormal,
    product_norms,
    random_heads,
    split,
    with_singular_values,
)

STATEMENTS: Mapping[str, Callable[[np.random.Generator], dict[str, list[BoundCheck]]]] = {
    "Theorem 1.1": embedding_theorems.smooth_instance,
    "Theorem 1.2": embedding_theorems.analytic_instance,
    "Corollary 2": embedding_theorems.corollary_instance,
    "Theorem 2": embedding_theorems.mlp_instance,
    "Theorem 3.1": attention_theorems.compressible_instance,
    "Theorem 3.2": attention_theorems.incompressible_instance,
    "Theorem 4 eq. 5": attention_theorems.upper_instance,
    "Theorem 4 eq. 6": attention_theorems.lower_instance,
    "Corollary 1 upper": attention_theorems.corollary_upper_instance,
    "Corollary 1 lower": attention_theorems.corollary_lower_instance,
    "Theorem 5": attention_theorems.several_heads_instance,
    "Theorem 6": attention_theorems.sketch_instance,
}


def instance(statement: str, seed: int, number: int) -> Iterator[tuple[str, BoundCheck]]:
    """Yield (part, check) for every part and form of a statement at one instance.

    The same three arguments give the same result. Raises ValueError, with the list of statements, for an
    unknown statement.
    """
    if statement not in STATEMENTS:
        raise ValueError(f"statement: got {statement!r}, expected one of {', '.join(STATEMENTS)}")
    rng = np.random.default_rng([seed, zlib.crc32(statement.encode()), number])
    for part, sides in STATEMENTS[statement](rng).items():
        for side in sides:
            yield part, side


Row = dict[str, Any]
# Maximum number of values of a spectrum in a figure.
MAX_POINTS = 512
LOGS, SEMI = "log-log", "log-linear"
# Singular values decay from e^0 to e^-5 (Yu et al. 2026, Appendix J.1).
COMPRESSION_DECAY = 5.0
# Number of columns of scores in memory at once.
BLOCK = 1024
# Singular values decay from e^0 to e^-20; the paper only says "exponentially decaying".
DECAY = 20.0
# Tolerance of the numerical rank that is fitted.
EPSILON = 1e-3
# Standard deviation of the scores in the case "spread".
SPREAD = 1.0
Scores = Literal["spread", "bounded"]


def compression_by_rank(seed: int, *, width: int, columns: int, points: int) -> list[Row]:
    """Return the points of J.1, Fig. 15 left: the error against σ_{d̃+1} at `points` ranks d̃ of 1..d-1.

    The bound is `repaired_bound` for distinct columns. `fitted` is true where d̃ ≤ d/2. At larger d̃, few singular
    values remain after σ_{d̃+1}, and the line bends. Yu et al. 2026 use every d̃.
    """
    rng = np.random.default_rng([seed, 31])
    values = exponential_values(width, COMPRESSION_DECAY)
    ranks = np.unique(np.linspace(1, width - 1, min(points, width - 1)).round().astype(int)).tolist()
    errors = projected_errors(*_random_attention(rng, values, columns), ranks)
    rows = []
    for rank, y in zip(ranks, errors, strict=True):
        tail = float(values[rank])
        check = BoundCheck("repaired", "upper", tail, y, 3 * math.e * math.sqrt(width) * tail, 1e-12)
        setting = {"width": width, "columns": columns, "rank": rank}
        rows.append(_point("J.1 rank", tail, y, setting, LOGS, 1.0, fitted=2 * rank <= width) | _bound(check))
    return rows


def compression_by_width(seed: int, *, widths: Sequence[int], columns: int, kept: int) -> list[Row]:
    """Return the points of J.1, Fig. 15 right: the error against d at one d̃ = `kept`.

    Weights and X are drawn again at every d; the leading singular values of X stay the same. Consecutive
    singular values have the same ratio at every width, and the last one of the narrowest X is e^-5.
    """
    rows = []
    for width in widths:
        rng = np.random.default_rng([seed, 32, width])
        values = np.exp(-COMPRESSION_DECAY * np.arange(width) / (min(widths) - 1))
        (y,) = projected_errors(*_random_attention(rng, values, columns), [kept])
        rows.append(_point("J.1 width", width, y, {"columns": columns, "rank": kept}, LOGS, 0.5, fitted=True))
    return rows


def sketch_by_heads(seed: int, *, width: int, kept: int, heads: Sequence[int], spectra: bool = False) -> list[Row]:
    """Return the points of J.2 for sparse and dense sketches: effective rank, and the distance of eq. 30.

    spectra: add the spectrum of X.
    """
    rows = _spectrum("J.2 spectrum", exponential_values(width, DECAY), 0) if spectra else []
    setting = {"width": width, "rank": kept}
    sparse_points = sketch_points(seed, width=width, rank=kept, heads=heads)
    dense_points = sketch_points(seed, width=width, rank=kept, heads=heads, dense=True)
    for name, points in (("sparse", sparse_points), ("dense", dense_points)):
        for point in points:
            x, y, distance, least = (point[key] for key in ("x", "y", "distance", "least"))
            count = {"heads": point["heads"]}
            fitted = name == "sparse" and y > 0
            rows.append(_point(f"J.2 {name}", x, y, setting, LOGS, 1.0, fitted=fitted) | count)
            check = BoundCheck("printed", "lower", x, distance, least, 1e-7 * least)
            rows.append(_point(f"J.2 {name} distance", x, distance, setting) | count | _bound(check))
    for sparse, dense in zip(sparse_points, dense_points, strict=True):
        ratio, count = sparse["distance"] / dense["distance"], {"heads": sparse["heads"]}
        rows.append(_point("J.2 sparse to dense", sparse["x"], ratio, setting, LOGS, 0.0, fitted=True) | count)
    return rows


def flow_by_heads(seed: int, *, width: int, columns: int, heads: Sequence[int], spectra: bool = False) -> list[Row]:
    """Return the numerical rank of MH-Attention(X) + X (J.3) for every number of heads h.

    Scores are spread, or those that Theorem 4 bounds. X, W_Q, W_K and W_V are the same for every h; the matrices are
    split into more heads. spectra: add the spectra of X, and of the layer's output Y for spread scores.
    """
    rows = _spectrum("J.3 spectrum", exponential_values(width, DECAY), 0) if spectra else []
    rng = np.random.default_rng([seed, 34])
    inputs = with_singular_values(rng, exponential_values(width, DECAY), width, columns)
    matrices = rng.standard_normal((3, width, width))
    cases: tuple[Scores, Scores] = ("spread", "bounded")
    for scores in cases:
        for count in heads:
            output = inputs + attend(inputs, scale_heads(matrices, count, inputs, scores))
            values = np.linalg.svd(output, compute_uv=False)
            values = values / values[0]
            rank, setting = (values > EPSILON).sum(), {"width": width, "columns": columns}
            rows.append(_point(f"J.3 {scores}", count, rank, setting, LOGS, fitted=True) | {"heads": count})
            if spectra and scores == "spread":
                rows += _spectrum("J.3 spectrum", values, count)
    return rows


def repeated_columns(seed: int, *, width: int = 16, rank: int = 8) -> list[Row]:
    """Return the points of Theorem 3, part 1, for a U that repeats one column of Ξ L times.

    The printed bound does not grow with L.
    """
    rows = []
    for point in repeated_points(seed, width=width, rank=rank):
        x, y, setting = point["x"], point["y"], {"width": width, "rank": rank}
        side = BoundCheck("printed", "upper", x, y, point["bound"])
        rows.append(_point("Theorem 3.1 length", x, y, setting, LOGS, 0.0, fitted=True) | _bound(side))
    return rows


def decay_rates(seed: int) -> list[Row]:
    """Return the points of Corollary 2's rate: the printed decay of -ln ρ per step is the slowest allowed."""
    rows: list[Row] = []
    for beta in BETAS:
        name, setting, slope = f"Corollary 2 rate, beta {beta:g}", {"beta": beta, "width": 64}, -math.log(radius(beta))
        rows += [
            _point(name, point["x"], point["y"], setting, SEMI, slope, fitted=bool(point["fitted"]))
            for point in rate_points(seed, beta)
        ]
    return rows


EXPERIMENTS: Mapping[str, Callable[..., list[Row]]] = {
    "rank": compression_by_rank,
    "width": compression_by_width,
    "sketch": sketch_by_heads,
    "flow": flow_by_heads,
    "repeated": repeated_columns,
    "rates": decay_rates,
}


def _point(
    name: str, x: float, y: float, setting: Row, scale: str = "", slope: float | None = None, *, fitted: bool = False
) -> Row:
    row = {"experiment": name, "x": float(x), "y": float(y), "fitted": bool(fitted)}
    return row | {"scale": scale or None, "claimed": slope, "setting": setting}


def _bound(side: BoundCheck) -> Row:
    return {"form": side.form, "side": side.side, "bound": side.bound, "floor": side.floor, "holds": side.holds}


def _spectrum(name: str, values: np.ndarray, heads: int) -> list[Row]:
    """Return σ_j against j, thinned to at most MAX_POINTS points. heads: 0 for the input itself."""
    step = -(-len(values) // MAX_POINTS)
    setting = {"width": len(values)}
    return [_point(name, at + 1, values[at], setting) | {"heads": heads} for at in range(0, len(values), step)]


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


def _random_attention(
    rng: np.random.Generator, values: np.ndarray, columns: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return the first arguments of `projected_errors` for a random X with these singular values.

    W_QᵀW_K and W_V are those of one Gaussian head, both of norm √d: equality in the hypotheses with C = 1.
    """
    width = len(values)
    left, right = orthonormal(rng, width, width), orthonormal(rng, columns, width)
    heads = random_heads(rng, 1, width, value_norm=math.sqrt(width), score_norm=math.sqrt(width))
    return left, values, right, heads.query[0].T @ heads.key[0], heads.value[0]


def _weights(rows: np.ndarray, keys: np.ndarray) -> np.ndarray:
    """Return the softmax of rowsᵀ keys down each column.

    It is computed in place, because the N x BLOCK array dominates memory.
    """
    scores: np.ndarray = rows.T @ keys
    scores -= scores.max(axis=0)
    np.exp(scores, out=scores)
    scores /= scores.sum(axis=0)
    return scores


def sketch_error(values: Float[np.ndarray, " width"], projected: Float[np.ndarray, "width row"]) -> float:
    """Return ‖QQᵀXᵀ - Xᵀ‖₂ with Q = orth(XᵀWᵀ), for X = U diag(values) Vᵀ and projected = UᵀWᵀ.

    Source: Yu et al. 2026, eq. 30. V cancels: with q = orth(diag(values) projected), where projected is [d, h d̃],
    the distance is ‖diag(values) (I - qqᵀ)‖₂ for any number of tokens.
    """
    from scipy.linalg import orth
    from scipy.sparse.linalg import LinearOperator, eigsh

    basis = orth(values[:, None] * projected)
    size = len(values)
    if basis.shape[1] >= size:
        return 0.0

    def apply(x: np.ndarray) -> np.ndarray:
        residual = x.ravel() - basis @ (basis.T @ x.ravel())
        residual = values**2 * residual
        return np.asarray(residual - basis @ (basis.T @ residual))

    operator = LinearOperator((size, size), matvec=apply, dtype=np.float64)
    # A fixed start vector makes the result reproducible.
    start = values[:, None].ravel() + 1e-3
    largest = eigsh(operator, k=1, v0=start, tol=1e-8, return_eigenvectors=False)[0]
    return float(np.sqrt(max(largest, 0.0)))


def sketch(rng: np.random.Generator, width: int, rows: int, n_filled: int) -> Float[np.ndarray, "row width"]:
    """Draw a sketch of `rows` rows, each with `n_filled` entries from N(0, 1) at random positions."""
    positions = np.argsort(rng.random((rows, width)), axis=1)[:, :n_filled]
    matrix = np.zeros((rows, width))
    np.put_along_axis(matrix, positions, rng.standard_normal((rows, n_filled)), axis=1)
    return matrix


def sketch_points(
    seed: int, *, width: int, rank: int, heads: Sequence[int], dense: bool = False
) -> list[dict[str, float | bool]]:
    """Return the distance of eq. 30 for every h, and the effective rank of the sketch.

    The effective rank is the number of singular values of X above the distance. Each of the h d̃ rows has d/h
    entries, so every h has the same number of entries. dense: each row has d entries. No sketch of h d̃ rows
    gets below σ_{hd̃+1} (`least`).
    """
    rng = np.random.default_rng([seed, 33])
    values, basis = exponential_values(width, DECAY), orthonormal(rng, width, width)
    points = []
    for count in heads:
        rows = count * rank
        matrix = sketch(rng, width, rows, width if dense else width // count)
        distance = sketch_error(values, (matrix @ basis).T)
        least = float(values[rows]) if rows < width else 0.0
        effective = int((values > distance).sum())
        points.append({"heads": count, "distance": distance, "least": least, "x": float(count), "y": float(effective)})
    return points


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

"""Parts of every instance of a statement of Yu et al. 2026: random matrices, attention, both sides of a bound.

Attention is in the paper's notation: columns are tokens, the softmax runs down each column.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import numpy as np
from jaxtyping import Float, Int

SPECTRA = ("exponential", "power", "flat", "step", "log-uniform")
# Smallest value of a spectrum: smaller ones become rounding after a few products.
SMALLEST = 1e-6
EPS = float(np.finfo(np.float64).eps)


Index = Float[np.ndarray, " index"]


class Spectrum(NamedTuple):
    """Singular values (positive, descending, the first 1), and the kind of distribution they come from."""

    values: np.ndarray
    kind: str


def orthonormal(rng: np.random.Generator, rows: int, columns: int) -> Float[np.ndarray, "row column"]:
    """Draw orthonormal columns, uniform (Haar): Q of a Gaussian matrix, with R's diagonal made positive.

    Source: Mezzadri 2007. Raises ValueError for more columns than rows.
    """
    if columns > rows:
        raise ValueError(f"columns: got {columns}, expected at most the {rows} rows")
    q, r = np.linalg.qr(rng.standard_normal((rows, columns)))
    return np.asarray(q * np.where(np.diag(r) < 0, -1.0, 1.0))


def with_singular_values(
    rng: np.random.Generator, values: Float[np.ndarray, " rank"], rows: int, columns: int
) -> Float[np.ndarray, "row column"]:
    """Return U diag(values) Vᵀ with random U and V, as Appendix J.1 constructs its inputs."""
    return np.asarray((orthonormal(rng, rows, len(values)) * values) @ orthonormal(rng, columns, len(values)).T)


def gaussian_with_norm(
    rng: np.random.Generator, rows: int, columns: int, norm: float
) -> Float[np.ndarray, "row column"]:
    """Draw a Gaussian matrix and scale it to this spectral norm."""
    matrix = rng.standard_normal((rows, columns))
    return np.asarray(matrix * (norm / np.linalg.norm(matrix, 2)))


def exponential_values(count: int, decay: float) -> Float[np.ndarray, " rank"]:
    """Return values from e^0 to e^-decay, evenly spaced on a logarithmic scale (Appendix J.1: e^0 to e^-5)."""
    return np.exp(-decay * np.arange(count) / max(count - 1, 1))


def random_spectrum(rng: np.random.Generator, count: int) -> Spectrum:
    """Draw a spectrum: exponential, power-law, flat, one step, or log-uniform.

    The first value is 1, and none is below SMALLEST.
    """
    kind = SPECTRA[rng.integers(len(SPECTRA))]
    at = np.arange(count)
    if kind == "exponential":
        values = np.exp(-rng.uniform(0.05, 3.0) * at)
    elif kind == "power":
        values = (1.0 + at) ** -rng.uniform(0.3, 3.0)
    elif kind == "flat":
        values = np.ones(count)
    elif kind == "step":
        values = np.where(at < rng.integers(1, count + 1), 1.0, 10.0 ** -rng.uniform(1, 6))
    else:
        values = np.sort(10.0 ** -rng.uniform(0, 6, count))[::-1]
        values = values / values[0]
    return Spectrum(np.maximum(values, SMALLEST), kind)


def rounding_error(matrix_norm: float, rows: int, columns: int) -> float:
    """Return the float64 uncertainty of the singular values of a matrix: 4 max(rows, columns) eps norm."""
    return 4 * max(rows, columns) * EPS * matrix_norm


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


Form = Literal["printed", "repaired"]
Side = Literal["upper", "lower"]
FORMS: tuple[Form, Form] = ("printed", "repaired")
# Relative tolerance: a smaller difference is rounding of the two sides.
SLACK = 1e-9


@dataclass(frozen=True)
class BoundCheck:
    """Check of one statement at one instance: `bound` limits `y` at the index or parameter `x`.

    - form: printed (the paper's words or construction) or repaired (with the condition that its proof needs).
    - side: upper or lower bound.
    - floor: absolute rounding uncertainty.
    - setting: other values that the instance was drawn with.
    """

    form: Form
    side: Side
    x: float
    y: float
    bound: float
    floor: float = 0.0
    setting: Mapping[str, Any] = field(default_factory=dict)

    @property
    def holds(self) -> bool:
        """Return whether the bound holds, up to rounding."""
        if self.side == "upper":
            return self.y <= self.bound * (1 + SLACK) + self.floor
        return self.y >= self.bound * (1 - SLACK) - self.floor

    @property
    def ratio(self) -> float:
        """Return the used share of the bound; above 1, the bound fails; 0 for 0/0."""
        numerator, denominator = (self.y, self.bound) if self.side == "upper" else (self.bound, self.y)
        return numerator / denominator if denominator else (0.0 if not numerator else float("inf"))


def tightest_case(
    form: Form, side: Side, x: Index, y: Index, bound: Index, *, floor: float, setting: Mapping[str, Any]
) -> BoundCheck:
    """Return the check at the index that uses the largest share of the bound.

    An index counts only where the larger of y and bound is above 10 floors; elsewhere, both may be rounding.
    If no index counts, the first one is taken. `setting["places"]` is the number of indices that count.
    """
    is_significant = np.maximum(y, bound) > 10 * floor
    setting = {**setting, "places": int(is_significant.sum())}
    values = zip(x.tolist(), y.tolist(), bound.tolist(), strict=True)
    checks = [BoundCheck(form, side, float(a), float(b), float(c), floor, setting) for a, b, c in values]
    shares = [check.ratio if is_used else -1.0 for check, is_used in zip(checks, is_significant, strict=True)]
    return checks[int(np.argmax(shares))]

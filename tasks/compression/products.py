"""Best approximations of the products that attention sees, head by head, from factors that stay thin.

Scores see W_Q and W_K only through W_Qᵀ W_K, outputs W_O and W_V only through W_O W_V: the best rank-r product (Eckart
and Young) is that of narrower heads. No matrix of width x width is formed: QR of the two thin factors, and the SVD of
their small core. Where query heads share a key and value head, their products are stacked.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from tasks.models.attention import Projections

# Of σ₁: a direction of scores below it is float32's rounding; dividing by √σ there would only amplify that rounding
NEGLIGIBLE = 2.0**-23


@dataclass(frozen=True, eq=False)
class Factors:
    """A matrix, or a stack of them, as left @ right; the first r columns and rows are the approximation of rank r.

    values: their squares from r on sum up to the squared error of that approximation in the norm that it is made for.
    """

    left: Float[np.ndarray, "row n"]
    right: Float[np.ndarray, "n column"]
    values: Float[np.ndarray, " value"]

    def cut(self, rank: int, width: int | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Both factors at this rank, with zeros up to `width` (default: the rank)."""
        rank, width = min(rank, self.left.shape[1]), rank if width is None else width
        pad = width - rank
        return np.pad(self.left[:, :rank], ((0, 0), (0, pad))), np.pad(self.right[:rank], ((0, pad), (0, 0)))

    def errors(self, full: int) -> Float[np.ndarray, " rank"]:
        """Squared relative error at ranks 0..full; zeros of a matrix of zeros."""
        largest = self.values.max(initial=0.0)
        squares = np.square(self.values / largest) if largest else np.zeros(len(self.values))
        tails = np.zeros(max(full, len(squares)) + 1)
        tails[: len(squares)] = np.cumsum(squares[::-1])[::-1]
        found: np.ndarray = tails[: full + 1] / (tails[0] or 1.0)
        return found


Ranked = tuple[Sequence[Factors], Sequence[int]]  # of every key or value head, and its rank


def product(left: Float[np.ndarray, "row k"], right: Float[np.ndarray, "k column"]) -> Factors:
    """SVD of left @ right by way of its k x k core, the singular values shared evenly between the factors."""
    (q_left, r_left), (q_right, r_right) = np.linalg.qr(left), np.linalg.qr(right.T)
    u, values, vt = np.linalg.svd(r_left @ r_right.T)
    count = len(values)
    halves = np.sqrt(values)
    return Factors(q_left @ u[:, :count] * halves, halves[:, None] * (vt[:count] @ q_right.T), values)


def triangle(rows: Float[np.ndarray, "row width"]) -> Float[np.ndarray, "least width"]:
    """R of rows = Q R: as long as it is wide at most, of the same second moments."""
    r: np.ndarray = np.asarray(np.linalg.qr(rows, mode="r"))
    return r


def scores(layer: Projections) -> list[Factors]:
    """[W_Q b_q]ᵀ W_K of every key head, the queries that share it stacked: best for the product itself.

    The key's bias adds the same to all scores of a query, which the softmax does not see: it is left out, exactly.
    """
    return [product(_stacked_queries(layer, group), key) for group, key in enumerate(layer.k)]


def weighed_scores(
    layer: Projections, queries: Float[np.ndarray, "n in_and_one"], keys: Float[np.ndarray, "m in"]
) -> list[Factors]:
    """The same, best for the mean squared score error over independent pairs of a query and a key.

    queries: R, RᵀR the second moments of [1 x] where x is projected to queries; keys: of what is projected to keys,
    less anything that is the same for all keys of a query, such as their mean. With R_A, R_B those of the head's own
    queries and keys and R_A R_Bᵀ = U S Vᵀ, W̃_Q = S^-½ Vᵀ R_B W_Q and W̃_K = S^-½ Uᵀ R_A W_K (science.md section 6): no
    moment is inverted, and directions below NEGLIGIBLE σ₁ are left out.
    """
    found = []
    for group, key in enumerate(layer.k):
        stacked = _stacked_queries(layer, group)
        bias_last = np.roll(queries, -1, axis=1) if layer.q_bias is not None else queries[:, 1:]
        rows = [bias_last @ one for one in np.split(stacked, _shared(layer))]
        root_a, root_b = triangle(np.concatenate(rows)), triangle(keys @ key.T)
        u, values, vt = np.linalg.svd(root_a @ root_b.T, full_matrices=False)
        count = int(np.count_nonzero(values > NEGLIGIBLE * values[0]))
        scale = 1 / np.sqrt(values[:count])
        left = stacked @ (root_b.T @ vt[:count].T * scale)
        found.append(Factors(left, scale[:, None] * (u[:, :count].T @ root_a @ key), values))
    return found


def outputs(layer: Projections) -> list[Factors]:
    """W_O W_V of every value head, the outputs that read it stacked: best for the product itself."""
    return [product(_stacked_outputs(layer, group), value) for group, value in enumerate(layer.v)]


def weighed_outputs(
    layer: Projections,
    attended: Float[np.ndarray, "n inner_and_one"] | None,
    inputs: Float[np.ndarray, "n in_and_one"] | None = None,
) -> list[Factors]:
    """The same, best for the mean squared output: W̃_O = U_r, W̃_V = U_rᵀ W_O W_V, U that of W_O W_V Z.

    attended: R of [1 H], H what the output projection is given, all heads side by side: without the value's bias that
    is W_V Z, Z the head's attended inputs Σ_j p_ij x_j. Or inputs: R of [1 x], x what is projected to values, for Z.
    Where query heads share a value head, all are weighed by the sum of their moments.
    """
    found = []
    for group, value in enumerate(layer.v):
        if attended is None:
            assert inputs is not None, "either is given"
            seen = inputs[:, 1:] @ value.T
        else:
            seen = np.concatenate(_attended_by_head(layer, attended, group))
        q_left, r_left = np.linalg.qr(_stacked_outputs(layer, group))
        u, values, _ = np.linalg.svd(r_left @ triangle(seen).T)
        found.append(Factors(q_left @ u, u.T @ r_left @ value, values))
    return found


class Shares(NamedTuple):
    """Of every key or value head: squared error of the layer's output, over its square, if a part were lost whole."""

    qk: list[float]
    vo: list[float]


def output_shares(
    layer: Projections,
    qk: Sequence[Factors],
    attended: Float[np.ndarray, "n inner_and_one"],
    keys: Float[np.ndarray, "m in"],
    key_rows: float,
) -> Shares:
    """What the relative errors of a head's parts weigh beside those of other heads and layers.

    V-O: the square of the head's own outputs. Q-K: its mean squared score times the mean squared spread of its outputs
    W_O W_V z over keys, to first order what an output moves by. Zeros where the layer's output is zero. On
    chronos-bolt-nano and chronos-t5-nano at a tenth of the parameters a budget by these errors costs 2.9 and 2.3 % of
    loss, by relative errors of the products alone 8.0 and 5.0 %.
    attended, keys: as of `weighed_outputs` and `weighed_scores`, whose factors are `qk` (none where scores stay); the
    first column of `attended` says how many its rows are, key_rows how many those of `keys`.
    """
    rows = float(np.square(attended[:, 0]).sum())
    made, whole, spread = [], np.zeros((len(attended), layer.o.shape[1])), []
    for group, value in enumerate(layer.v):
        heads = zip(_attended_by_head(layer, attended, group), _heads(layer, group), strict=True)
        outs = [seen @ layer.o[head].T for seen, head in heads]
        made.append(float(sum(np.square(one).sum() for one in outs)) / rows)
        whole += sum(outs)
        spread.append(np.square(keys @ value.T @ _stacked_outputs(layer, group).T).sum() / key_rows)
    total = np.square(whole).sum() / rows or np.inf
    score = [np.square(one.values).sum() / (rows * key_rows * _shared(layer)) for one in qk]
    return Shares(
        [float(a * b / total) for a, b in zip(score, spread, strict=False)], [float(one / total) for one in made]
    )


def absorbed(layer: Projections, qk: Ranked | None, vo: Ranked | None) -> Projections:
    """The layer with heads of other products, each of a rank of its own; None: as it is.

    All heads are as wide as the widest: where ranks differ, zeros fill up the others. The value's bias is W_O b_v in
    the output's, exactly, as attention weights sum to one.
    """
    new = layer
    if qk is not None:
        (width, cuts), shared, inside = _cut(qk), _shared(layer), layer.q.shape[2]
        q = np.concatenate([np.moveaxis(left.reshape(shared, -1, width), 2, 1) for left, _ in cuts])  # [h, r, in (+1)]
        bias = q[:, :, inside] if layer.q_bias is not None else None
        new = new._replace(q=q[:, :, :inside], k=np.stack([right for _, right in cuts]), q_bias=bias, k_bias=None)
    if vo is not None:
        (width, cuts), shared = _cut(vo), _shared(layer)
        o = np.concatenate([left.reshape(shared, -1, width) for left, _ in cuts])
        new = new._replace(o=o, v=np.stack([right for _, right in cuts]), v_bias=None, o_bias=_output_bias(layer))
    return new


def _cut(ranked: Ranked) -> tuple[int, list[tuple[np.ndarray, np.ndarray]]]:
    """The widest head's width, and both factors of every head."""
    width = max(ranked[1])
    return width, [one.cut(rank, width) for one, rank in zip(*ranked, strict=True)]


def _shared(layer: Projections) -> int:
    """Query heads a key and value head."""
    return len(layer.q) // len(layer.k)


def _heads(layer: Projections, group: int) -> range:
    shared = _shared(layer)
    return range(group * shared, (group + 1) * shared)


def _stacked_queries(layer: Projections, group: int) -> np.ndarray:
    """W_Qᵀ, its bias the last row where there is one, of the query heads of a group, one below the other."""
    heads = [layer.q[head].T for head in _heads(layer, group)]
    if (bias := layer.q_bias) is not None:
        heads = [np.vstack((one, bias[head])) for one, head in zip(heads, _heads(layer, group), strict=True)]
    return np.concatenate(heads)


def _stacked_outputs(layer: Projections, group: int) -> np.ndarray:
    return np.concatenate([layer.o[head] for head in _heads(layer, group)])


def _attended_by_head(layer: Projections, attended: np.ndarray, group: int) -> list[np.ndarray]:
    """Columns of R that are a head's, less the value's bias."""
    width, found = layer.v.shape[1], []
    for head in _heads(layer, group):
        columns = attended[:, 1 + head * width : 1 + (head + 1) * width]
        bias = layer.v_bias
        found.append(columns if bias is None else columns - attended[:, :1] * bias[group])
    return found


def _output_bias(layer: Projections) -> np.ndarray | None:
    if layer.v_bias is None:
        return layer.o_bias
    by_head = np.repeat(layer.v_bias, _shared(layer), axis=0)
    moved: np.ndarray = np.einsum("hov,hv->o", layer.o, by_head)
    return moved if layer.o_bias is None else layer.o_bias + moved

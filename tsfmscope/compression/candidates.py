"""Candidates of a truncation: parts of attention layers, with low-rank factors, errors and parameters by rank.

Attention scores depend on W_Q and W_K only through W_Qᵀ W_K, and outputs on W_O and W_V only through W_O W_V.
The best product of rank r (Eckart and Young) is the product of narrower heads. CLOVER (arXiv 2411.17426)
publishes the same optimum. No matrix of width x width is formed: the thin factors get a QR decomposition and
their small core an SVD. Where several query heads share one key and value head, their products are stacked.

The functions `single_matrices`, `projected_matrices` and `head_products` yield the candidates of a layer;
`options.METHODS` names them.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from jaxtyping import Float

from tsfmscope.compression.budget import Curve, Spectrum
from tsfmscope.compression.calibration import Moments
from tsfmscope.models.common.attention import NAMES, AttentionLayer, Projections
from tsfmscope.models.common.layers import count_numbers

if TYPE_CHECKING:
    from tsfmscope.models.base import Family

# Relative to σ₁: a direction of scores with a smaller σ is float32 rounding, which a division by √σ
# would amplify.
NEGLIGIBLE = 2.0**-23


@dataclass(frozen=True, eq=False)
class Factors:
    """Matrix, or vertical stack of matrices, as the product left @ right.

    The approximation of rank r is the product of the first r columns of `left` and the first r rows of
    `right`.
    values: the sum of the squares of values[r:] is the squared error of that approximation, in the norm that
    it minimises.
    """

    left: Float[np.ndarray, "row n"]
    right: Float[np.ndarray, "n column"]
    values: Float[np.ndarray, " value"]

    def truncate(self, rank: int, width: int | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Return both factors at this rank, padded with zeros to `width` (default: the rank)."""
        rank, width = min(rank, self.left.shape[1]), rank if width is None else width
        pad = width - rank
        return np.pad(self.left[:, :rank], ((0, 0), (0, pad))), np.pad(self.right[:rank], ((0, pad), (0, 0)))

    def errors(self, full: int) -> Float[np.ndarray, " rank"]:
        """Return the squared relative error at ranks 0..full; a matrix of zeros has errors of 0."""
        largest = self.values.max(initial=0.0)
        squares = np.square(self.values / largest) if largest else np.zeros(len(self.values))
        tails = np.zeros(max(full, len(squares)) + 1)
        tails[: len(squares)] = np.cumsum(squares[::-1])[::-1]
        errors: np.ndarray = tails[: full + 1] / (tails[0] or 1.0)
        return errors


# Factors and rank of every key or value head.
RankedFactors = tuple[Sequence[Factors], Sequence[int]]


def product(left: Float[np.ndarray, "row k"], right: Float[np.ndarray, "k column"]) -> Factors:
    """Return the SVD of left @ right, computed from its k x k core.

    Each factor is scaled by the square roots of the singular values.
    """
    (q_left, r_left), (q_right, r_right) = np.linalg.qr(left), np.linalg.qr(right.T)
    u, values, vt = np.linalg.svd(r_left @ r_right.T)
    count = len(values)
    halves = np.sqrt(values)
    return Factors(q_left @ u[:, :count] * halves, halves[:, None] * (vt[:count] @ q_right.T), values)


def triangle(rows: Float[np.ndarray, "row width"]) -> Float[np.ndarray, "least width"]:
    """Return R of the decomposition rows = Q R: at most `width` rows with the same second moments."""
    r: np.ndarray = np.asarray(np.linalg.qr(rows, mode="r"))
    return r


def plain_factors(matrix: Float[np.ndarray, "row column"]) -> Factors:
    """Return the SVD as factors, each scaled by the square roots of the singular values.

    Source: Yu et al. 2026, Table 2.
    """
    u, values, vt = np.linalg.svd(matrix, full_matrices=False)
    halves = np.sqrt(values)
    return Factors(u * halves, halves[:, None] * vt, values)


def weighted_factors(matrix: Float[np.ndarray, "row column"], inputs: Float[np.ndarray, "n column"]) -> Factors:
    """Return the factors with the least mean squared error of the output W x.

    W̃ = U_r U_rᵀ W, with U from the SVD of W C^½.
    Source: docs/science.md, Compression; SVD-LLM's whitening (ICLR 2025) has the same optimum.
    inputs: R with RᵀR = C, the second moments of the inputs x. C is neither formed nor inverted.
    """
    root = triangle(inputs)
    # All directions of the outputs are kept, also those that the inputs do not reach.
    u, values, _ = np.linalg.svd(matrix @ root.T, full_matrices=len(root) < len(matrix))
    return Factors(u, u.T @ matrix, values)


def projected_factors(matrix: Float[np.ndarray, "row column"], inputs: Float[np.ndarray, "n column"]) -> Factors:
    """Return the factors of W̃ = W U_r U_rᵀ, with U the leading directions of the inputs.

    All matrices that read the same inputs get the same U. Source: Yu et al. 2026, proof of Theorem 3.
    inputs: as in `weighted_factors`.
    """
    _, lengths, vt = np.linalg.svd(inputs, full_matrices=False)
    left = matrix @ vt.T
    return Factors(left, vt, np.linalg.norm(left, axis=0) * lengths)


def score_factors(layer: Projections) -> list[Factors]:
    """Return [W_Q b_q]ᵀ W_K of every key head, factorised with the least Frobenius error of the product.

    The query heads that share a key head are stacked. The key bias is left out, which is exact: it adds the
    same number to all scores of a query, and a softmax ignores that.
    """
    return [product(_stacked_queries(layer, group), key) for group, key in enumerate(layer.k)]


def weighted_score_factors(
    layer: Projections, queries: Float[np.ndarray, "n in_and_one"], keys: Float[np.ndarray, "m in"]
) -> list[Factors]:
    """Return [W_Q b_q]ᵀ W_K of every key head, factorised with the least mean squared error of the scores.

    W̃_Q = S^-½ Vᵀ R_B W_Q and W̃_K = S^-½ Uᵀ R_A W_K, where R_A R_Bᵀ = U S Vᵀ and R_A, R_B are the R factors
    of the head's own queries and keys.
    Source: docs/science.md, Compression. A³-QK (arXiv 2505.12942) publishes the same objective up to the centring of
    the keys. The mean is over independent pairs of a query and a key. No second moment is inverted.
    Directions below NEGLIGIBLE σ₁ are left out; a head whose scores are all 0 gets factors of rank 0.
    queries: R factor of the rows [1 x], where x is the input of the query projection.
    keys: R factor of the inputs of the key projection, less anything that is equal for all keys of a query,
    such as their mean.
    """
    factors = []
    for group, key in enumerate(layer.k):
        stacked = _stacked_queries(layer, group)
        bias_last = np.roll(queries, -1, axis=1) if layer.q_bias is not None else queries[:, 1:]
        rows = [bias_last @ head for head in np.split(stacked, _group_size(layer))]
        root_a, root_b = triangle(np.concatenate(rows)), triangle(keys @ key.T)
        u, values, vt = np.linalg.svd(root_a @ root_b.T, full_matrices=False)
        count = int(np.count_nonzero(values > NEGLIGIBLE * values[0]))
        scale = 1 / np.sqrt(values[:count])
        left = stacked @ (root_b.T @ vt[:count].T * scale)
        factors.append(Factors(left, scale[:, None] * (u[:, :count].T @ root_a @ key), values))
    return factors


def output_factors(layer: Projections) -> list[Factors]:
    """Return W_O W_V of every value head, factorised with the least Frobenius error of the product.

    The output matrices of the query heads that share a value head are stacked.
    """
    return [product(_stacked_outputs(layer, group), value) for group, value in enumerate(layer.v)]


def weighted_output_factors(layer: Projections, head_outputs: Float[np.ndarray, "n inner_and_one"]) -> list[Factors]:
    """Return W_O W_V of every value head, factorised with the least mean squared error of the head's output.

    W̃_O = U_r and W̃_V = U_rᵀ W_O W_V, where U is from the SVD of W_O W_V Z.
    Source: docs/science.md, Compression. A³-OV (arXiv 2505.12942) publishes the same objective.
    head_outputs: R factor of the rows [1 H], where H is the input of the output projection, all heads
    concatenated. Less the value bias, a head's part of H is W_V Z, where Z is its attended inputs Σ_j p_ij
    x_j.
    Where query heads share a value head, the sum of their second moments weighs all of them.
    """
    factors = []
    for group, value in enumerate(layer.v):
        value_rows = np.concatenate(_outputs_by_head(layer, head_outputs, group))
        q_left, r_left = np.linalg.qr(_stacked_outputs(layer, group))
        u, values, _ = np.linalg.svd(r_left @ triangle(value_rows).T)
        factors.append(Factors(q_left @ u, u.T @ r_left @ value, values))
    return factors


class Shares(NamedTuple):
    """Squared error of the layer's output, over its square, if a part of one head were set to zero.

    qk: one number per key head. vo: one number per value head.
    """

    qk: list[float]
    vo: list[float]


def output_shares(
    layer: Projections, qk: Sequence[Factors], head_outputs: Float[np.ndarray, "n inner_and_one"],
    keys: Float[np.ndarray, "m in"], key_rows: float,
) -> Shares:  # fmt: skip
    """Return the weights of the heads' relative errors, comparable between heads and layers.

    V-O: the mean square of the head's own outputs. Q-K: the head's mean squared score times the mean squared
    spread of its outputs W_O W_V z over keys, which is to first order the squared change of the output. Both
    are divided by the mean square of the layer's output; all are 0 where that is 0.
    At a tenth of the attention parameters, a budget by these errors raises the loss of a small Chronos-Bolt by
    2.9 % and of a small Chronos-T5 by 2.3 %; a budget by the relative errors of the products alone raises it by
    8.0 % and 5.0 %.
    head_outputs, keys: as in `weighted_output_factors` and `weighted_score_factors`.
    qk: the factors from `weighted_score_factors`; empty if scores are not compressed.
    The squared norm of the first column of `head_outputs` is the number of rows
    that it sums up; key_rows is that number for `keys`.
    """
    rows = float(np.square(head_outputs[:, 0]).sum())
    value_squares, output, spread = [], np.zeros((len(head_outputs), layer.o.shape[1])), []
    for group, value in enumerate(layer.v):
        heads = zip(_outputs_by_head(layer, head_outputs, group), _heads(layer, group), strict=True)
        outs = [head_rows @ layer.o[head].T for head_rows, head in heads]
        value_squares.append(float(sum(np.square(array).sum() for array in outs)) / rows)
        output += sum(outs)
        spread.append(np.square(keys @ value.T @ _stacked_outputs(layer, group).T).sum() / key_rows)
    total = np.square(output).sum() / rows or np.inf
    score = [np.square(factors.values).sum() / (rows * key_rows * _group_size(layer)) for factors in qk]
    return Shares(
        [float(a * b / total) for a, b in zip(score, spread, strict=False)],
        [float(squares / total) for squares in value_squares],
    )


def apply_products(layer: Projections, qk: RankedFactors | None, vo: RankedFactors | None) -> Projections:
    """Return the layer with new Q-K and V-O products, one rank per head; a part that is None stays unchanged.

    All heads get the width of the widest; narrower ones are padded with zeros. The key bias is dropped with a
    new Q-K product. With a new V-O product the value bias moves into the output bias as W_O b_v. Both are
    exact, the latter since attention weights sum to one.
    """
    new = layer
    if qk is not None:
        (width, cuts), group_size, inside = _truncate_all(qk), _group_size(layer), layer.q.shape[2]
        # [h, r, in], with one more column for the query bias, if there is one
        q = np.concatenate([np.moveaxis(left.reshape(group_size, -1, width), 2, 1) for left, _ in cuts])
        bias = q[:, :, inside] if layer.q_bias is not None else None
        new = new._replace(q=q[:, :, :inside], k=np.stack([right for _, right in cuts]), q_bias=bias, k_bias=None)
    if vo is not None:
        (width, cuts), group_size = _truncate_all(vo), _group_size(layer)
        o = np.concatenate([left.reshape(group_size, -1, width) for left, _ in cuts])
        new = new._replace(o=o, v=np.stack([right for _, right in cuts]))
        if layer.v_bias is not None:
            # Attention weights sum to 1, so a bias of values is a part of the output bias.
            moved = np.einsum("hov,hv->o", layer.o, np.repeat(layer.v_bias, group_size, axis=0))
            new = new._replace(v_bias=None, o_bias=moved if layer.o_bias is None else layer.o_bias + moved)
    return new


def _truncate_all(ranked_factors: RankedFactors) -> tuple[int, list[tuple[np.ndarray, np.ndarray]]]:
    """Return the width of the widest head, and both factors of every head, padded to it."""
    width = max(ranked_factors[1])
    return width, [factors.truncate(rank, width) for factors, rank in zip(*ranked_factors, strict=True)]


def _group_size(layer: Projections) -> int:
    """Return the number of query heads per key and value head."""
    return len(layer.q) // len(layer.k)


def _heads(layer: Projections, group: int) -> range:
    group_size = _group_size(layer)
    return range(group * group_size, (group + 1) * group_size)


def _stacked_queries(layer: Projections, group: int) -> np.ndarray:
    """Return W_Qᵀ of a group's query heads, stacked vertically; a query bias is the last row of its head."""
    heads = [layer.q[head].T for head in _heads(layer, group)]
    if (bias := layer.q_bias) is not None:
        heads = [np.vstack((weight, bias[head])) for weight, head in zip(heads, _heads(layer, group), strict=True)]
    return np.concatenate(heads)


def _stacked_outputs(layer: Projections, group: int) -> np.ndarray:
    return np.concatenate([layer.o[head] for head in _heads(layer, group)])


def _outputs_by_head(layer: Projections, head_outputs: np.ndarray, group: int) -> list[np.ndarray]:
    """Return the columns of R that belong to each query head of a group, without the value bias."""
    width, parts = layer.v.shape[1], []
    for head in _heads(layer, group):
        columns = head_outputs[:, 1 + head * width : 1 + (head + 1) * width]
        bias = layer.v_bias
        parts.append(columns if bias is None else columns - head_outputs[:, :1] * bias[group])
    return parts


@dataclass(frozen=True, eq=False)
class Candidate:
    """Matrices of a layer that share one rank: all heads' products of a part ("qk", "vo"), or whole matrices.

    parts: names of the parts that `factors` factorise: one part with one item per head, or one part per item.
    full: the largest rank, at which the weights stay unchanged.
    costs: number of parameters by rank, from rank 1 on. before: number of parameters now.
    shares: weights of the squared relative errors of `factors` in a budget.
    """

    layer: AttentionLayer
    parts: tuple[str, ...]
    factors: list[Factors]
    full: int
    costs: np.ndarray
    before: int
    shares: list[float]

    def curve(self) -> Curve:
        """Return, by rank, the number of parameters and the weighted sum of squared relative errors."""
        errors = np.zeros(self.full)
        for share, factors in zip(self.shares, self.factors, strict=True):
            errors += share * factors.errors(self.full)[1:]
        return Curve(self.costs, errors)

    def spectrum(self) -> Spectrum:
        """Return the costs by rank and the singular values of a single matrix; no values if it is idle.

        ValueError if the candidate has several factors.
        """
        (factors,) = self.factors
        return Spectrum(self.costs, factors.values if any(self.shares) else factors.values[:0])

    def error(self, rank: int, part: int = 0) -> float:
        """Return the relative error at a rank: root mean square over heads, or the error of matrix number `part`."""
        factors = self.factors if len(self.parts) == 1 else [self.factors[part]]
        return float(np.sqrt(np.mean([item.errors(self.full)[rank] for item in factors])))


def inert_matrices(model: Family, *, univariate: bool) -> frozenset[tuple[str, str, str]]:
    """Return the matrices (stack, attention, matrix) of a family that cannot change any forecast.

    Group attention (Chronos-2) is over one series in our windows, but over several where a user forecasts
    several series together. Its queries and keys therefore count as inert only if `univariate` is true, which
    means that every forecast is of a single series.
    """
    return frozenset(matrix for matrix in model.inert_projections if univariate or matrix[1] != "group")


def separate_idle(candidate: Candidate, idle: Container[tuple[str, str, str]]) -> Iterator[Candidate]:
    """Yield the candidate with shares of 0 if its matrices are idle; two candidates if only some are."""
    layer = candidate.layer
    # The name of a part has one letter per matrix: "qk", "vo", or a single letter.
    is_idle = {part: all((layer.stack, layer.kind, name) in idle for name in part) for part in candidate.parts}
    if not any(is_idle.values()):
        yield candidate
    elif all(is_idle.values()):
        yield replace(candidate, shares=[0.0] * len(candidate.shares))
    else:
        matrices_of = dense_matrices(layer)
        for state in (True, False):
            parts = {part: matrices_of[part] for part in candidate.parts if is_idle[part] is state}
            pairs = zip(candidate.parts, candidate.factors, strict=True)
            own = [factors for part, factors in pairs if part in parts]
            split_candidate = matrices_candidate(layer, parts, own, candidate.full)
            yield replace(split_candidate, shares=[0.0] * len(own)) if state else split_candidate


def matrices_candidate(
    layer: AttentionLayer, by_name: dict[str, np.ndarray], factors: list[Factors], full: int
) -> Candidate:
    """Return a candidate of two thin factors per matrix.

    `cost` counts a matrix as dense if its factors have more numbers. At the full rank the matrices stay dense.
    """
    costs = np.array([sum(count_numbers(layer, name, rank) for name in by_name) for rank in range(1, full + 1)])
    costs[-1] = before = sum(matrix.size for matrix in by_name.values())
    return Candidate(layer, tuple(by_name), factors, full, costs, before, [1.0] * len(factors))


def dense_matrices(layer: AttentionLayer) -> dict[str, np.ndarray]:
    """Return the four matrices of a layer, [out, in], as its modules contain them."""
    return {name: layer.linear(name).weight.detach().double().cpu().numpy() for name in NAMES}


def count_parameters(layers: Sequence[AttentionLayer], parts: Iterable[str] = NAMES) -> int:
    """Return the number of parameters of these projections, biases included."""
    linears = (layer.linear(name) for layer in layers for name in parts)
    return sum(tensor.numel() for linear in linears for tensor in linear.parameters())


def single_matrices(layer: AttentionLayer, projections: Projections, moments: Moments | None) -> Iterator[Candidate]:
    """Yield every matrix of a layer as a candidate of its own, as two thin factors."""
    for name, matrix in dense_matrices(layer).items():
        if moments is None:
            factors = plain_factors(matrix)
        else:
            roots = {"q": moments.queries, "k": moments.inputs, "v": moments.inputs, "o": moments.head_outputs}
            # The inputs of plain keys are centred: their mean adds the same to all scores of a query, which the softmax
            # ignores, and it would otherwise dominate. The mean of rotated or normed keys does not.
            is_centred = name == "k" and layer.plain
            factors = weighted_factors(matrix, moments.keys if is_centred else roots[name][:, 1:])
        yield matrices_candidate(layer, {name: matrix}, [factors], min(matrix.shape))


def projected_matrices(layer: AttentionLayer, projections: Projections, moments: Moments | None) -> Iterator[Candidate]:
    """Yield Q, K and V together, projected on the leading directions of their inputs."""
    assert moments is not None, "`model_candidates` checks it"
    by_name = {name: matrix for name, matrix in dense_matrices(layer).items() if name != "o"}
    inputs = {"q": moments.queries[:, 1:], "k": moments.inputs[:, 1:], "v": moments.inputs[:, 1:]}
    factors = [projected_factors(matrix, inputs[name]) for name, matrix in by_name.items()]
    yield matrices_candidate(layer, by_name, factors, min(matrix.shape[1] for matrix in by_name.values()))


def head_products(layer: AttentionLayer, projections: Projections, moments: Moments | None) -> Iterator[Candidate]:
    """Yield the products of heads: Q-K if nothing lies between projection and product, and V-O always."""
    qk: list[Factors] = []
    if moments is None:
        if layer.plain:
            qk = score_factors(projections)
        vo = output_factors(projections)
        shares = Shares([1.0] * len(qk), [1.0] * len(vo))
    else:
        if layer.plain:
            qk = weighted_score_factors(projections, moments.queries, moments.keys)
        key_rows = float(np.square(moments.inputs[:, 0]).sum())
        shares = output_shares(projections, qk, moments.head_outputs, moments.keys, key_rows)
        vo = weighted_output_factors(projections, moments.head_outputs)
    widths = projections.widths
    if layer.plain:
        query_size = projections.q.shape[2] + (projections.q_bias is not None)
        per_rank = len(projections.q) * query_size + len(projections.k) * projections.k.shape[2]
        yield _product_candidate(layer, "qk", qk, shares.qk, per_rank * np.arange(1, widths.key + 1))
    has_bias = projections.o_bias is not None or projections.v_bias is not None
    bias = projections.o.shape[1] if has_bias else 0
    per_rank = len(projections.o) * projections.o.shape[1] + len(projections.v) * projections.v.shape[2]
    yield _product_candidate(layer, "vo", vo, shares.vo, bias + per_rank * np.arange(1, widths.value + 1))


def _product_candidate(
    layer: AttentionLayer, part: str, factors: list[Factors], shares: list[float], costs: np.ndarray
) -> Candidate:
    costs[-1] = before = count_parameters([layer], part)
    return Candidate(layer, (part,), factors, len(costs), costs, before, shares)

"""Candidates of a truncation: parts of attention layers, with errors and parameters by rank.

The functions `single_matrices`, `projected_matrices` and `head_products` yield the candidates of a layer;
`methods.METHODS` names them.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from tsfmscope.compression import products
from tsfmscope.compression.budget import Curve, Spectrum, widest
from tsfmscope.compression.calibration import Moments
from tsfmscope.compression.products import Factors
from tsfmscope.models.common.attention import NAMES, AttentionLayer, Projections
from tsfmscope.models.common.low_rank import count_numbers

if TYPE_CHECKING:
    from tsfmscope.models.base import Family


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

    def widest(self, rank: int) -> int:
        """Return the full rank if it costs as much as this rank, else this rank."""
        return widest(self.costs, rank)

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
            factors = products.plain_factors(matrix)
        else:
            roots = {"q": moments.queries, "k": moments.inputs, "v": moments.inputs, "o": moments.head_outputs}
            # The inputs of plain keys are centred: their mean adds the same to all scores of a query, which the softmax
            # ignores, and it would otherwise dominate. The mean of rotated or normed keys does not.
            is_centred = name == "k" and layer.plain
            factors = products.weighted_factors(matrix, moments.keys if is_centred else roots[name][:, 1:])
        yield matrices_candidate(layer, {name: matrix}, [factors], min(matrix.shape))


def projected_matrices(layer: AttentionLayer, projections: Projections, moments: Moments | None) -> Iterator[Candidate]:
    """Yield Q, K and V together, projected on the leading directions of their inputs."""
    assert moments is not None, "`model_candidates` checks it"
    by_name = {name: matrix for name, matrix in dense_matrices(layer).items() if name != "o"}
    inputs = {"q": moments.queries[:, 1:], "k": moments.inputs[:, 1:], "v": moments.inputs[:, 1:]}
    factors = [products.projected_factors(matrix, inputs[name]) for name, matrix in by_name.items()]
    yield matrices_candidate(layer, by_name, factors, min(matrix.shape[1] for matrix in by_name.values()))


def head_products(layer: AttentionLayer, projections: Projections, moments: Moments | None) -> Iterator[Candidate]:
    """Yield the products of heads: Q-K if nothing lies between projection and product, and V-O always."""
    qk: list[Factors] = []
    if moments is None:
        if layer.plain:
            qk = products.score_factors(projections)
        vo = products.output_factors(projections)
        shares = products.Shares([1.0] * len(qk), [1.0] * len(vo))
    else:
        if layer.plain:
            qk = products.weighted_score_factors(projections, moments.queries, moments.keys)
        key_rows = float(np.square(moments.inputs[:, 0]).sum())
        shares = products.output_shares(projections, qk, moments.head_outputs, moments.keys, key_rows)
        vo = products.weighted_output_factors(projections, moments.head_outputs)
    widths = projections.widths
    if layer.plain:
        query_size = projections.q.shape[2] + (projections.q_bias is not None)
        per_rank = len(projections.q) * query_size + len(projections.k) * projections.k.shape[2]
        yield _heads(layer, "qk", qk, shares.qk, per_rank * np.arange(1, widths.key + 1))
    has_bias = projections.o_bias is not None or projections.v_bias is not None
    bias = projections.o.shape[1] if has_bias else 0
    per_rank = len(projections.o) * projections.o.shape[1] + len(projections.v) * projections.v.shape[2]
    yield _heads(layer, "vo", vo, shares.vo, bias + per_rank * np.arange(1, widths.value + 1))


def _heads(
    layer: AttentionLayer, part: str, factors: list[Factors], shares: list[float], costs: np.ndarray
) -> Candidate:
    costs[-1] = before = count_parameters([layer], part)
    return Candidate(layer, (part,), factors, len(costs), costs, before, shares)

"""Candidates of a compression: parts of attention layers, with errors and parameters by rank."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from tsfmscope.compression.budget import Curve, Spectrum, widest
from tsfmscope.compression.products import Factors
from tsfmscope.models.common.attention import NAMES, AttentionLayer
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

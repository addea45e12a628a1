"""Basis Sharing (Wang et al., ICLR 2025) for bench/compression_race.py, in place.

The query matrices of two consecutive layers of one stack and kind share one basis, and so do their keys and their
values. With S the Cholesky factor of the second moments of their inputs, summed over both layers, the SVD of S [W_1ᵀ,
W_2ᵀ] is truncated; r(in + 2 out) numbers are stored. An output matrix, and the last layer of an odd number, have a
basis of their own, which is the truncation of SVD-LLM. All matrices keep the same share of their parameters. From 40 %
removed on, the coefficients are fitted to the inputs of the compressed model, as in the authors' configurations of
LLaMA-7B. Source: arXiv 2410.03765 and its public code (TUDa-HWAI/Basis_Sharing).
Deviations: the second moments are those of `svd-llm` in this race (tokens with a gradient), and matrices without effect
get rank 1, as with all methods here. Cross-attention, which the authors' models lack, is paired like self-attention.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float

from tsfmscope.compression.calibration_data import CalibrationData
from tsfmscope.compression.candidates import Candidate, inert_matrices
from tsfmscope.compression.loss_statistics import LossStatistics, gather_gradients
from tsfmscope.compression.matrices import weighted_factors
from tsfmscope.compression.methods.allocation import one_share
from tsfmscope.compression.methods.peers import root
from tsfmscope.compression.products import Factors
from tsfmscope.compression.truncation import ranks_by_budget
from tsfmscope.models.base import Forecaster
from tsfmscope.models.common.attention import AttentionLayer

# Layers that share a basis, and the largest size at which coefficients are fitted (authors' configurations).
GROUP, FITTED = 2, 0.6


class Group(NamedTuple):
    """Matrices with one name (q, k, v or o) of layers that share a basis."""

    layers: tuple[AttentionLayer, ...]
    matrix: str

    def weights(self) -> Float[np.ndarray, "rows in"]:
        """Return the matrices of all layers, one below the other."""
        return np.concatenate([layer.linear(self.matrix).weight.detach().double().numpy() for layer in self.layers])

    def inputs(self, statistics: Mapping[str, Mapping[str, LossStatistics]]) -> Float[np.ndarray, "in in"]:
        """Return the second moments of the inputs, summed over the layers.

        Queries and keys of self-attention read the inputs of the values, so the authors store one matrix for them.
        """
        from_values = self.matrix == "k" or (self.matrix == "q" and self.layers[0].kind != "cross")
        name = "v" if from_values else self.matrix
        return np.sum([statistics[layer.name][name].inputs for layer in self.layers], axis=0)

    def write(self, weights: Float[np.ndarray, "rows in"]) -> None:
        """Set the matrices of all layers."""
        for layer, weight in zip(self.layers, np.split(weights, len(self.layers)), strict=True):
            with torch.no_grad():
                layer.linear(self.matrix).weight.copy_(torch.from_numpy(weight))


def share_bases(model: Forecaster, size: float, data: CalibrationData) -> None:
    """Replace the attention matrices, in place, by products with shared bases that have `size` of the parameters.

    BudgetError if rank 1 of every basis has more.
    """
    layers, idle = list(model.attentions()), inert_matrices(model, univariate=False)
    groups = [Group(part, matrix) for part in pairs(layers) for matrix in "qkv"]
    groups += [Group((layer,), "o") for layer in layers]
    statistics = data.statistics("gradients") or {}
    factors = [shared_factors(group.weights(), group.inputs(statistics)) for group in groups]
    candidates = []
    for group, product in zip(groups, factors, strict=True):
        first = group.layers[0]
        is_idle = (first.stack, first.kind, group.matrix) in idle
        candidates.append(_candidate(group, product, is_idle=is_idle))
    ranks = ranks_by_budget(size, candidates, layers, lambda budget: one_share(candidates, budget))
    chosen = [
        (group, *product.truncate(rank))
        for group, product, candidate, rank in zip(groups, factors, candidates, ranks, strict=True)
        if rank < candidate.full
    ]
    originals = [group.weights() for group, _, _ in chosen]
    for group, left, right in chosen:
        group.write(left @ right)
    if size <= FITTED:
        statistics = gather_gradients(model, data.windows)
        # All moments are those of the model before any fit, as in the authors' code.
        for (group, left, right), weights in zip(chosen, originals, strict=True):
            group.write(fitted_coefficients(weights, left, right, group.inputs(statistics)) @ right)


def pairs(layers: Sequence[AttentionLayer]) -> Iterator[tuple[AttentionLayer, ...]]:
    """Yield groups of GROUP consecutive layers of one stack and kind; the last one may be smaller."""
    by_kind: dict[tuple[str, str], list[AttentionLayer]] = {}
    for layer in layers:
        by_kind.setdefault((layer.stack, layer.kind), []).append(layer)
    for members in by_kind.values():
        for start in range(0, len(members), GROUP):
            yield tuple(members[start : start + GROUP])


def shared_factors(weights: Float[np.ndarray, "rows in"], inputs: Float[np.ndarray, "in in"]) -> Factors:
    """Return coefficients and bases of stacked matrices, in order of importance.

    The authors' S⁻¹ U Σ Vᵀ, with U Σ Vᵀ = S Wᵀ, is the transpose of V Vᵀ W, which needs no inverse.
    """
    return weighted_factors(weights, root(inputs))


def fitted_coefficients(
    weights: Float[np.ndarray, "rows in"],
    coefficients: Float[np.ndarray, "rows rank"],
    basis: Float[np.ndarray, "rank in"],
    inputs: Float[np.ndarray, "in in"],
) -> Float[np.ndarray, "rows rank"]:
    """Return the coefficients with the least squared error of the outputs for inputs of these second moments.

    The authors invert B X Bᵀ; least squares give the same where it is invertible. Without inputs nothing is fitted.
    """
    if not inputs.any():
        return coefficients
    scale = root(inputs)
    fitted: np.ndarray = np.linalg.lstsq(scale @ basis.T, scale @ weights.T, rcond=None)[0].T
    return fitted


def _candidate(group: Group, factors: Factors, *, is_idle: bool) -> Candidate:
    rows, columns = group.weights().shape
    full = min(rows, columns)
    costs = np.minimum(np.arange(1, full + 1) * (rows + columns), rows * columns)
    costs[-1] = before = rows * columns
    return Candidate(group.layers[0], (group.matrix,), [factors], full, costs, before, [0.0 if is_idle else 1.0])

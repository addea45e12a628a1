"""Layer-wise error model search (LEMS): ranks of KFAC-SVD by measured errors of single matrices and their depth."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.stats import qmc

from tsfmscope.compression.candidates import Candidate, inert_matrices
from tsfmscope.compression.fidelity import last_states, window_errors
from tsfmscope.compression.methods.allocation import least_error
from tsfmscope.compression.methods.interface import Statistics
from tsfmscope.compression.methods.registry import list_candidates
from tsfmscope.compression.options import Method
from tsfmscope.compression.truncation import apply_ranks, candidate_rows, ranks_by_budget
from tsfmscope.errors import ModelError
from tsfmscope.models.common.low_rank import compression_entries

if TYPE_CHECKING:
    from tsfmscope.models.base import Family
    from tsfmscope.models.types import Tokens

METHOD, FACTORS = "kfac-svd-lems", "kfac-svd"
# Share of the parameters at which every matrix is measured alone.
MEASURED = 0.1
# Number of depth weights that are tried, and the largest exponent and strength.
TRIALS, LARGEST = 10, (3.0, 7.0)


def compress(
    model: Family, method: Method, tokens: Sequence[Tokens], gradients: Statistics | None
) -> list[dict[str, Any]]:
    """Truncate a model in place to a budget of the attention parameters; return the rows of `truncation.compress`.

    Equation: the error of matrix i at rank r is D_i (1 − E_i(r)) / (1 − E_i(r₀)) (1 + γ h_l), where D_i is the squared
    relative error of the last hidden states if only this matrix is truncated to r₀ (a share MEASURED of its
    parameters), E_i the share of the squared singular values, and h_l falls from 1 in the first attention layer to 0 in
    the last: the normalised sum of (k + 1)^−α over the layers from l on. Ranks have the least sum of these errors.
    Of TRIALS pairs of α and γ, the one with the least error of the truncated model is used. The first pair is (0, 0),
    with which all layers have the same weight.
    Source: LEMS and its public code (ICML 2026). Deviations: errors of the last hidden states (an option there) instead
    of a divergence of token probabilities, which only some families have; h_l by attention layer instead of by block; a
    greedy allocation instead of an integer program; trials on a Halton sequence instead of Optuna's.

    method: as in `truncation.compress`, with the rule `budget`. tokens: calibration windows, as `gather` takes them.
    gradients: result of `gather_gradients` for the same windows. BudgetError if rank 1 of everything exceeds the
    budget. ModelError if the last hidden states do not depend on some attention layers (VisionTS' decoder).
    """
    layers, budget = list(model.attentions()), method.ranks.rule[1]
    if hidden := sorted({layer.name for layer in layers if layer.stack not in model.stacks}):
        raise ModelError(
            f"method {METHOD}: {model.name} has attention layers after its last hidden states, {', '.join(hidden)}; "
            f"use method {FACTORS}, which measures no hidden states"
        )
    idle = inert_matrices(model, univariate=method.univariate)
    candidates = list_candidates(FACTORS, layers, gradients, idle)
    expected = [last_states(model, part) for part in tokens]

    def error(ranks: Sequence[int]) -> float:
        trial = copy.deepcopy(model)
        _apply(trial, candidates, ranks)
        parts = zip(expected, tokens, strict=True)
        squares = [np.square(window_errors(trial, states, part)) for states, part in parts]
        return float(np.nanmean([np.nanmean(one) for one in squares]))

    def ranks_with(shares: Sequence[float]) -> list[int]:
        weighed = [replace(one, shares=[share]) for one, share in zip(candidates, shares, strict=True)]
        return ranks_by_budget(budget, candidates, layers, lambda remaining: least_error(weighed, remaining))

    measured = [_measure_weight(candidates, index, error) for index in range(len(candidates))]
    depths = [layers.index(candidate.layer) for candidate in candidates]
    trials = [(0.0, 0.0), *(qmc.Halton(2, seed=0).random(TRIALS - 1) * LARGEST).tolist()]
    chosen = {}
    for alpha, gamma in trials:
        weights = depth_weights(len(layers), alpha, gamma)
        chosen[alpha, gamma] = ranks_with(
            [weight * weights[depth] for weight, depth in zip(measured, depths, strict=True)]
        )
    errors = {trial: error(ranks) for trial, ranks in chosen.items()}
    ranks = chosen[min(errors, key=lambda trial: errors[trial])]
    _apply(model, candidates, ranks)
    model.compression = {**method.to_dict(), **compression_entries(model.attentions())}
    return [row for candidate, rank in zip(candidates, ranks, strict=True) for row in candidate_rows(candidate, rank)]


def depth_weights(layers: int, alpha: float, gamma: float) -> np.ndarray:
    """Return 1 + γ h_l for each of the layers; 1 for a single layer."""
    tails = np.cumsum((np.arange(layers) + 1.0)[::-1] ** -alpha)[::-1]
    spread = tails[0] - tails[-1]
    weights: np.ndarray = 1 + gamma * (tails - tails[-1]) / (spread if spread else 1.0)
    return weights


def _measure_weight(candidates: Sequence[Candidate], index: int, error: Any) -> float:
    """Return D_i / (1 − E_i(r₀)) of one matrix; 0 if it is idle."""
    candidate = candidates[index]
    if not any(candidate.shares):
        return 0.0
    rank = max(1, int(MEASURED * candidate.before / candidate.costs[0]))
    ranks = [one.full for one in candidates]
    ranks[index] = rank
    return float(error(ranks) / max(candidate.error(rank) ** 2, 1e-6))


def _apply(model: Family, candidates: Sequence[Candidate], ranks: Sequence[int]) -> None:
    for layer in model.attentions():
        pairs = zip(candidates, ranks, strict=True)
        apply_ranks(layer, [(candidate, rank) for candidate, rank in pairs if candidate.layer.name == layer.name])

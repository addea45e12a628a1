"""Published methods that factorise single attention matrices, for bench/compression_race.py, in place.

Each minimises ‖B^½ (W − W̃) A^½‖ with weights A of the inputs x and B of the outputs. g is the gradient of the family's
training loss by W x, E a mean over tokens, F the Fisher information of W.

| method | A | B | ranks |
| --- | --- | --- | --- |
| asvd | diag(E \\|x\\|)^2α, α = 0.5 | I | one share |
| svd-llm | E x xᵀ | I | one share |
| fwsvd | diagonal of F, mean over the outputs | I | one share |
| gfwsvd | right factor of F ≈ R ⊗ L | left factor | one share |
| kfac-svd | E x xᵀ | E g gᵀ | one share |
| zs-svd | E x xᵀ | I | zero sum |
| kfac-svd-lems | E x xᵀ | E g gᵀ | measured errors and depth |

Weights of zero, as for a matrix without effect on the loss, become I, so that the result is the plain SVD. Matrices
without effect get rank 1.
Sources: ASVD arXiv 2312.05821; SVD-LLM arXiv 2403.07378 (ICLR 2025); FWSVD arXiv 2207.00112 (ICLR 2022); GFWSVD arXiv
2505.17974; ZS-SVD arXiv 2602.02848; KFAC-SVD and LEMS (ICML 2026), whose public code (lems-svd/lems) contains the
first five too.
`svd-llm, progressive` and the like compute the factors of a layer from the network whose earlier layers are compressed.
Deviations from that code:
- Only rows with a gradient count. There, all tokens count, and for E g gᵀ of KFAC-SVD those between the first and the
  last eighth of a text.
- ASVD is that of its paper; there, maxima of |x| with α = 1. The paper searches ranks by perplexity.
- GFWSVD and KFAC-SVD use square roots of A and B. There, the lower Cholesky factor L of B stands left of W, which gives
  outputs the weights LᵀL instead of B = L Lᵀ.
- No method updates or trains the factors after the truncation. ZS-SVD has one stage and no factors of eight bits.
"""

from __future__ import annotations

import copy
import heapq
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from scipy.stats import qmc

from tsfmscope.compression.budget import allocate, refuse, widest
from tsfmscope.compression.calibration import calibration_tokens, equal_windows
from tsfmscope.compression.candidates import (
    Candidate,
    Factors,
    dense_matrices,
    inert_matrices,
    matrices_candidate,
    separate_idle,
    weighted_factors,
)
from tsfmscope.compression.fidelity import last_states, window_errors
from tsfmscope.compression.options import Calibration as Options
from tsfmscope.compression.outputs import loss_batches
from tsfmscope.compression.truncation import apply_ranks, ranks_by_budget
from tsfmscope.errors import ModelError
from tsfmscope.models.base import Family
from tsfmscope.models.common.attention import NAMES, AttentionLayer
from tsfmscope.models.types import Tokens
from tsfmscope.series.types import Windows

# Windows per group. The Fisher information is defined by the gradients of single windows. The gradients of groups need
# less memory; the public code of GFWSVD averages over 16 batches for the same reason.
GROUP = 4
# A row counts if the norm of its gradient is above this share of the largest. The gradient of a query that attends to
# one key is 0 on some processors, and rounding error on others.
NOISE = 1e-6
# Bounds of the norm of a row's gradient, as multiples of the mean norm of its group (public code of KFAC-SVD, where the
# mean is over one sequence).
LEAST_NORM, LARGEST_NORM = 0.1, 10.0
# Exponent of the mean magnitudes (ASVD).
ALPHA = 0.5
# Shares of the mean variance in the weights of inputs and of outputs (public code of KFAC-SVD).
KFAC_SHRINKAGE = (0.1, 0.3)
# Share of the mean variance in a factor that is not positive definite in float32 (public code of GFWSVD, which tries a
# Cholesky decomposition).
GFWSVD_SHRINKAGE = 0.2
# Steps of the power iteration for the factors of the Fisher information.
ITERATIONS = 50
# Share of the mean weight that is added to diagonal weights, so that no input has weight zero.
SMALLEST_WEIGHT = 1e-6
# ZS-SVD: smallest rank, as a share of the largest rank at which two factors have fewer numbers than the matrix.
SMALLEST_RANK = 0.1
# LEMS: share of the parameters at which every matrix is measured alone, number of depth weights that are tried, and the
# largest exponent and strength.
MEASURED, TRIALS, LARGEST = 0.1, 10, (3.0, 7.0)


@dataclass(frozen=True, eq=False)
class LossStatistics:
    """Statistics of one matrix W [out, in] over the rows whose output has a gradient; zeros if there is none.

    A row is the input x of the matrix at one token; g is the gradient by the output W x of the loss of a group times
    the number of its windows. Rows with a gradient of zero, such as padding, cannot change the loss and are left out.

    inputs: mean of x xᵀ. magnitudes: mean of |x|. outputs: mean of g gᵀ, with norms of g clipped to LEAST_NORM and
    LARGEST_NORM. gradients: gradient by W of the loss of each group, in float32 to save memory.
    """

    inputs: Float[np.ndarray, "in in"]
    magnitudes: Float[np.ndarray, " in"]
    outputs: Float[np.ndarray, "out out"]
    gradients: Float[np.ndarray, "group out in"]


# Attention layer -> q, k, v or o -> statistics.
Statistics = Mapping[str, Mapping[str, LossStatistics]]


class Calibration:
    """Synthetic calibration data of one model, computed when a method first reads them, and then kept."""

    def __init__(self, model: Family, options: Options) -> None:
        """Compute nothing yet."""
        self.model, self.options = model, options

    @cached_property
    def tokens(self) -> list[Tokens]:
        """Tokens of the calibration windows, one item per data set."""
        return calibration_tokens(self.model, {}, self.options)

    @cached_property
    def windows(self) -> list[Windows]:
        """Calibration windows with their futures, as many for every data set."""
        return equal_windows(self.model, {}, self.options)

    @cached_property
    def statistics(self) -> Statistics:
        """Statistics of every matrix."""
        return gather_gradients(self.model, self.windows)


def gather_gradients(
    model: Family, windows: Sequence[Windows], *, group: int = GROUP, layers: Sequence[AttentionLayer] = ()
) -> Statistics:
    """Return the statistics of every matrix of these attention layers, or of all.

    The loss is the family's training loss, with dropout off. windows: calibration windows with their futures, one item
    per data set; each item is divided into groups of at most `group` windows.
    """
    layers = layers or list(model.attentions())
    linears = {(layer.name, name): layer.linear(name) for layer in layers for name in NAMES}
    groups = sum(math.ceil(len(item) / group) for item in windows)
    sums = {point: _Sums(groups, *linear.weight.shape) for point, linear in linears.items()}
    model.network.eval()
    for index, parts in enumerate(loss_batches(model, windows, group)):
        with torch.enable_grad(), torch.random.fork_rng(devices=[]), _recorded(linears) as calls:
            # The loss of some families draws patch sizes or layouts.
            torch.manual_seed(0)
            loss = model.loss(*parts)
            flat = [(point, states, output) for point, pairs in calls.items() for states, output in pairs]
            gradients = torch.autograd.grad(loss, [output for *_, output in flat], allow_unused=True)
        for (point, states, _), gradient in zip(flat, gradients, strict=True):
            if gradient is not None:
                assert loss.isfinite() and gradient.isfinite().all(), point
                sums[point].add(index, len(parts[0]), _rows(states), _rows(gradient))
    found: dict[str, dict[str, LossStatistics]] = {}
    for (layer, name), item in sums.items():
        found.setdefault(layer, {})[name] = item.statistics()
    return found


class _Sums:
    """Sums over the rows of one matrix, updated call by call."""

    def __init__(self, groups: int, n_out: int, n_in: int) -> None:
        self._rows = 0
        self._inputs, self._magnitudes = np.zeros((n_in, n_in)), np.zeros(n_in)
        self._outputs = np.zeros((n_out, n_out))
        self._gradients = np.zeros((groups, n_out, n_in), np.float32)

    def add(
        self, group: int, windows: int, states: Float[np.ndarray, "row in"], gradients: Float[np.ndarray, "row out"]
    ) -> None:
        """Add the rows of a call. windows: number of windows in the group; its loss is a mean over them."""
        norms = np.linalg.norm(gradients, axis=1)
        counted = norms > NOISE * norms.max(initial=0.0)
        states, gradients, norms = states[counted], gradients[counted], norms[counted]
        if not len(norms):
            return
        self._gradients[group] += gradients.T @ states
        self._rows += len(norms)
        self._inputs += states.T @ states
        self._magnitudes += np.abs(states).sum(axis=0)
        bounds = norms.mean() * np.array([LEAST_NORM, LARGEST_NORM])
        clipped = windows * gradients * (np.clip(norms, *bounds) / norms)[:, None]
        self._outputs += clipped.T @ clipped

    def statistics(self) -> LossStatistics:
        rows = max(1, self._rows)
        return LossStatistics(self._inputs / rows, self._magnitudes / rows, self._outputs / rows, self._gradients)


@contextmanager
def _recorded(
    linears: Mapping[tuple[str, str], torch.nn.Module],
) -> Iterator[dict[tuple[str, str], list[tuple[torch.Tensor, torch.Tensor]]]]:
    """Record input and output of every call of these modules."""
    calls: dict[tuple[str, str], list[tuple[torch.Tensor, torch.Tensor]]] = {point: [] for point in linears}

    def record(point: tuple[str, str], _: Any, inputs: tuple[torch.Tensor, ...], output: torch.Tensor) -> None:
        # Without it, the first layers of a model with frozen weights would have no gradient.
        if not output.requires_grad:
            output.requires_grad_()
        calls[point].append((inputs[0].detach(), output))

    handles = [linear.register_forward_hook(partial(record, point)) for point, linear in linears.items()]
    try:
        yield calls
    finally:
        for handle in handles:
            handle.remove()


def _rows(states: torch.Tensor) -> Float[np.ndarray, "row width"]:
    array: np.ndarray = states.detach().double().cpu().numpy()
    return array.reshape(-1, array.shape[-1])


def asvd(matrix: Float[np.ndarray, "out in"], statistics: LossStatistics) -> Factors:
    """Return factors with columns scaled by the mean magnitude of their inputs, to the power ALPHA."""
    return weighted_factors(matrix, diagonal(statistics.magnitudes**ALPHA))


def svd_llm(matrix: Float[np.ndarray, "out in"], statistics: LossStatistics) -> Factors:
    """Return the factors with the least mean squared error of the outputs."""
    return weighted_factors(matrix, root(statistics.inputs))


def fwsvd(matrix: Float[np.ndarray, "out in"], statistics: LossStatistics) -> Factors:
    """Return factors with columns weighed by the square root of their mean Fisher information."""
    information = np.square(statistics.gradients, dtype=np.float64).mean(axis=(0, 1))
    return weighted_factors(matrix, diagonal(np.sqrt(information)))


def gfwsvd(matrix: Float[np.ndarray, "out in"], statistics: LossStatistics) -> Factors:
    """Return factors weighed by the Kronecker product that is nearest to the Fisher information."""
    left, right = map(shrink_singular, kronecker_factors(statistics.gradients))
    return two_sided_factors(matrix, root(left), root(right))


def kfac(matrix: Float[np.ndarray, "out in"], statistics: LossStatistics) -> Factors:
    """Return factors weighed by the second moments of inputs and of gradients by the outputs."""
    inputs, outputs = shrink(statistics.inputs, KFAC_SHRINKAGE[0]), shrink(statistics.outputs, KFAC_SHRINKAGE[1])
    return two_sided_factors(matrix, root(outputs), root(inputs))


FACTORS: dict[str, Callable[[np.ndarray, LossStatistics], Factors]] = {
    "asvd": asvd, "svd-llm": svd_llm, "fwsvd": fwsvd, "gfwsvd": gfwsvd, "kfac-svd": kfac, "zs-svd": svd_llm,
}  # fmt: skip

# Methods that are raced with statistics of the network that is compressed so far, too.
PROGRESSIVE = ("svd-llm", "zs-svd", "kfac-svd", "asvd")


def two_sided_factors(
    matrix: Float[np.ndarray, "row column"],
    outputs: Float[np.ndarray, "row row"],
    inputs: Float[np.ndarray, "column column"],
) -> Factors:
    """Return the factors with the least ‖R_B (W − W̃) R_Aᵀ‖, with weights on rows and on columns.

    W̃ = R_B⁻¹ U_r U_rᵀ R_B W, with U from the SVD of R_B W R_Aᵀ. R_A need not be invertible.
    outputs: R_B, invertible. inputs: R_A.
    """
    u, values, _ = np.linalg.svd(outputs @ matrix @ inputs.T)
    return Factors(np.linalg.solve(outputs, u), u.T @ outputs @ matrix, values)


def kronecker_factors(
    gradients: Float[np.ndarray, "group out in"],
) -> tuple[Float[np.ndarray, "out out"], Float[np.ndarray, "in in"]]:
    """Return the factors L and R of the Kronecker product nearest to the mean of vec(G) vec(G)ᵀ.

    L ∝ mean G R Gᵀ and R ∝ mean Gᵀ L G are the leading singular pair of the rearranged matrix (Van Loan and Pitsianis
    1993), by power iteration from R = I. Both have the same Frobenius norm. Zeros for gradients of zero.
    """
    largest = float(np.abs(gradients).max(initial=0.0))
    _, n_out, n_in = gradients.shape
    if not largest:
        return np.zeros((n_out, n_out)), np.zeros((n_in, n_in))
    scaled, right = gradients.astype(np.float64) / largest, np.eye(n_in)
    for _ in range(ITERATIONS):
        left = np.mean(scaled @ right @ scaled.transpose(0, 2, 1), axis=0)
        left /= np.linalg.norm(left)
        right = np.mean(scaled.transpose(0, 2, 1) @ left @ scaled, axis=0)
        size = np.linalg.norm(right)
        right /= size
    half = np.sqrt(size) * largest
    return left * half, right * half


def diagonal(weights: Float[np.ndarray, " n"]) -> Float[np.ndarray, "n n"]:
    """Return the diagonal matrix of the weights plus SMALLEST_WEIGHT times their mean; I for weights of zero."""
    return np.diag(weights + SMALLEST_WEIGHT * weights.mean()) if weights.any() else np.eye(len(weights))


def shrink(moments: Float[np.ndarray, "n n"], share: float) -> Float[np.ndarray, "n n"]:
    """Return (1 − share) moments + share times the mean variance times I."""
    variance = float(np.trace(moments)) / len(moments)
    return (1 - share) * moments + share * variance * np.eye(len(moments))


def shrink_singular(moments: Float[np.ndarray, "n n"]) -> Float[np.ndarray, "n n"]:
    """Return the moments, shrunk by GFWSVD_SHRINKAGE if they are not positive definite in float32."""
    values = np.linalg.eigvalsh(moments)
    is_definite = values[0] > np.finfo(np.float32).eps * values[-1]
    return moments if is_definite else shrink(moments, GFWSVD_SHRINKAGE)


def root(moments: Float[np.ndarray, "n n"]) -> Float[np.ndarray, "n n"]:
    """Return the symmetric square root; I for moments of zero. Negative eigenvalues, which are rounding, count as 0."""
    if not moments.any():
        return np.eye(len(moments))
    values, vectors = np.linalg.eigh(moments)
    matrix: np.ndarray = (vectors * np.sqrt(np.maximum(values, 0))) @ vectors.T
    return matrix


def factorise(model: Family, size: float, data: Calibration, *, method: str, is_progressive: bool = False) -> None:
    """Replace matrices by two thin factors with `size` of the attention parameters, by a method of FACTORS.

    is_progressive: the factors of a layer are computed from the statistics of the network whose earlier layers are
    compressed already, with one group per data set to save time; the ranks are those of the dense network.
    BudgetError if rank 1 of every matrix has more.
    """
    layers = list(model.attentions())
    candidates = list_candidates(model, layers, method, data.statistics)
    if method == "zs-svd":
        spend = partial(zero_sum, candidates, statistics=data.statistics)
    else:
        spend = partial(one_share, candidates)
    ranks = ranks_by_budget(size, candidates, layers, spend)
    if not is_progressive:
        write_ranks(model, candidates, ranks)
        return
    for layer in layers:
        chosen = [rank for candidate, rank in zip(candidates, ranks, strict=True) if candidate.layer.name == layer.name]
        statistics = gather_gradients(model, data.windows, group=max(map(len, data.windows)), layers=[layer])
        write_ranks(model, list_candidates(model, [layer], method, statistics), chosen)


def list_candidates(
    model: Family, layers: Sequence[AttentionLayer], method: str, statistics: Statistics
) -> list[Candidate]:
    """Return every matrix of these layers with its factors; those of matrices without effect have shares of 0."""
    idle = inert_matrices(model, univariate=False)
    candidates: list[Candidate] = []
    for layer in layers:
        for name, matrix in dense_matrices(layer).items():
            factors = FACTORS[method](matrix, statistics[layer.name][name])
            candidates += separate_idle(matrices_candidate(layer, {name: matrix}, [factors], min(matrix.shape)), idle)
    return candidates


def write_ranks(model: Family, candidates: Sequence[Candidate], ranks: Sequence[int]) -> None:
    """Truncate the matrices of a model in place; candidates: of this model or of one with the same weights."""
    for layer in model.attentions():
        pairs = zip(candidates, ranks, strict=True)
        apply_ranks(layer, [(candidate, rank) for candidate, rank in pairs if candidate.layer.name == layer.name])


def one_share(candidates: Sequence[Candidate], budget: int) -> list[int]:
    """Return ranks that leave the same share of the parameters of every matrix, as the code of SVD-LLM does.

    The rank is int(s * parameters of the matrix / parameters per rank), at least 1, with the largest share s within the
    budget. It is the full rank if s is 1, or if two factors of this rank have as many numbers as the matrix.
    """
    per_rank = np.array([candidate.costs[0] for candidate in candidates])
    full = np.array([candidate.before for candidate in candidates])
    widths = np.array([candidate.full for candidate in candidates])
    is_idle = np.array([not any(candidate.shares) for candidate in candidates])
    if budget < per_rank.sum():
        refuse(budget, int(per_rank.sum()))

    def ranks(share: float) -> list[int]:
        # 1e-9 because share * full / per_rank may be just below the integer from which the share was computed.
        shared = np.floor(share * full / per_rank + 1e-9) if share < 1 else widths
        wanted = np.where(is_idle, 1, np.maximum(1, shared)).astype(int)
        return [widest(candidate.costs, rank) for candidate, rank in zip(candidates, wanted.tolist(), strict=True)]

    # Ranks change only at these shares.
    steps = [np.arange(one.full) * cost / whole for one, whole, cost in zip(candidates, full, per_rank, strict=True)]
    shares = np.unique(np.concatenate([*steps, [1.0]]))
    return ranks(max(float(share) for share in shares if share <= 1 and _count(candidates, ranks(share)) <= budget))


def zero_sum(candidates: Sequence[Candidate], budget: int, statistics: Statistics) -> list[int]:
    """Return the ranks that the zero-sum rule leaves within the budget.

    From every matrix, its last singular value can be removed next. While the sum of predicted changes of the loss is
    above zero, the removal with the smallest decrease comes next, and otherwise the one with the smallest increase;
    if there is none of that sign, the smallest change of the other. Ranks do not fall below a share SMALLEST_RANK,
    unless the budget is too small for them. As in the public code, a removal counts as saved parameters only once two
    factors have fewer numbers than the matrix, and a matrix that is left at a higher rank keeps its full rank.
    """
    least = []
    for candidate in candidates:
        break_even = (candidate.before - 1) // int(candidate.costs[0])
        least.append(max(1, math.ceil(SMALLEST_RANK * break_even)) if any(candidate.shares) else 1)
    if budget < _count(candidates, least):
        least = [1] * len(candidates)
    if budget < (smallest := _count(candidates, least)):
        refuse(budget, smallest)
    ranks = [candidate.full if any(candidate.shares) else 1 for candidate in candidates]
    changes = [loss_changes(candidate, statistics) for candidate in candidates]
    # Removals by whether they increase the loss: size of the change, number of the removal, candidate.
    heaps: dict[bool, list[tuple[float, int, int]]] = {True: [], False: []}
    numbers = itertools.count()

    def push(index: int) -> None:
        if ranks[index] > least[index]:
            change = float(changes[index][ranks[index] - 1])
            heapq.heappush(heaps[change >= 0], (abs(change), next(numbers), index))

    for index in range(len(candidates)):
        push(index)
    size, total = _count(candidates, ranks), 0.0
    while size > budget:
        wants_increase = total <= 0
        *_, index = heapq.heappop(heaps[wants_increase] or heaps[not wants_increase])
        ranks[index] -= 1
        total += float(changes[index][ranks[index]])
        costs = candidates[index].costs
        size -= int(costs[ranks[index]] - costs[ranks[index] - 1])
        push(index)
    return [widest(candidate.costs, rank) for candidate, rank in zip(candidates, ranks, strict=True)]


def loss_changes(candidate: Candidate, statistics: Statistics) -> Float[np.ndarray, " rank"]:
    """Return the predicted change of the loss by the removal of each singular value: −σ uᵀ G S⁻ᵀ v.

    σ, u and v are those of W S, with S Sᵀ = E x xᵀ, and G is the mean gradient by W. Since σ vᵀ = uᵀ W S, the change is
    −uᵀ G Wᵀ u, which needs no inverse of S. The factors of `weighted_factors` are U and Uᵀ W.
    """
    (name,), (factors,) = candidate.parts, candidate.factors
    gradient = statistics[candidate.layer.name][name].gradients.mean(axis=0, dtype=np.float64)
    changes: np.ndarray = -np.einsum("oi,oi->o", factors.left.T @ gradient, factors.right)
    return changes


def search_lems(model: Family, size: float, data: Calibration) -> None:
    """Factorise by KFAC-SVD, with ranks by measured errors of single matrices and their depth.

    Equation: the error of matrix i at rank r is D_i (1 − E_i(r)) / (1 − E_i(r₀)) (1 + γ h_l), where D_i is the squared
    relative error of the last hidden states if only this matrix is truncated to r₀ (a share MEASURED of its
    parameters), E_i the share of the squared singular values, and h_l falls from 1 in the first attention layer to 0 in
    the last: the normalised sum of (k + 1)^−α over the layers from l on. Ranks have the least sum of these errors.
    Of TRIALS pairs of α and γ, the one with the least error of the truncated model is used. The first pair is (0, 0),
    with which all layers have the same weight.
    Source: LEMS and its public code. Deviations: errors of the last hidden states (an option there) instead of a
    divergence of token probabilities, which only some families have; h_l by attention layer instead of by block; a
    greedy allocation instead of an integer program; trials on a Halton sequence instead of Optuna's.
    ModelError if the last hidden states do not depend on some attention layers (VisionTS' decoder).
    """
    layers = list(model.attentions())
    if hidden := sorted({layer.name for layer in layers if layer.stack not in model.stacks}):
        raise ModelError(f"{model.name} has attention layers after its last hidden states: {', '.join(hidden)}")
    candidates = list_candidates(model, layers, "kfac-svd", data.statistics)
    expected = [last_states(model, part) for part in data.tokens]

    def error(ranks: Sequence[int]) -> float:
        trial = copy.deepcopy(model)
        write_ranks(trial, candidates, ranks)
        pairs = zip(expected, data.tokens, strict=True)
        return float(np.nanmean([np.nanmean(np.square(window_errors(trial, *pair))) for pair in pairs]))

    measured = []
    for index, candidate in enumerate(candidates):
        ranks = [one.full for one in candidates]
        ranks[index] = rank = max(1, int(MEASURED * candidate.before / candidate.costs[0]))
        is_idle = not any(candidate.shares)
        measured.append(0.0 if is_idle else error(ranks) / max(candidate.error(rank) ** 2, 1e-6))
    names = [layer.name for layer in layers]
    depths = [names.index(candidate.layer.name) for candidate in candidates]
    chosen = []
    for alpha, gamma in [(0.0, 0.0), *(qmc.Halton(2, seed=0).random(TRIALS - 1) * LARGEST).tolist()]:
        weights = depth_weights(len(layers), alpha, gamma)[depths] * measured
        curves = [replace(one, shares=[weight]).curve() for one, weight in zip(candidates, weights, strict=True)]
        chosen.append(ranks_by_budget(size, candidates, layers, partial(allocate, curves)))
    write_ranks(model, candidates, min(chosen, key=error))


def depth_weights(layers: int, alpha: float, gamma: float) -> Float[np.ndarray, " layer"]:
    """Return 1 + γ h_l for each of the layers; 1 for a single layer."""
    tails = np.cumsum((np.arange(layers) + 1.0)[::-1] ** -alpha)[::-1]
    spread = tails[0] - tails[-1]
    weights: np.ndarray = 1 + gamma * (tails - tails[-1]) / (spread if spread else 1.0)
    return weights


def _count(candidates: Sequence[Candidate], ranks: Sequence[int]) -> int:
    """Return the number of parameters at these ranks."""
    return sum(int(candidate.costs[rank - 1]) for candidate, rank in zip(candidates, ranks, strict=True))


MATRIX_METHODS: dict[str, Callable[[Family, float, Calibration], None]] = {
    **{name: partial(factorise, method=name) for name in FACTORS},
    **{f"{name}, progressive": partial(factorise, method=name, is_progressive=True) for name in PROGRESSIVE},
    "kfac-svd-lems": search_lems,
}

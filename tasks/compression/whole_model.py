"""Compression of a whole model to a share of its bytes: eight bits, narrower heads or thin factors, fewer neurons.

All weights are rounded to eight bits. What is still missing to the requested bytes is removed from attention and from
MLPs. How much each gives is chosen by the error of the last hidden states on calibration windows that did not give
the moments.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tsfmscope.tasks.compression import neurons, truncation, two_step
from tsfmscope.tasks.compression.budget import BudgetError, Curve, allocate
from tsfmscope.tasks.compression.calibration import gather
from tsfmscope.tasks.compression.fidelity import last_states, window_errors
from tsfmscope.tasks.compression.refit import fit_outputs
from tsfmscope.tasks.errors import ModelError
from tsfmscope.tasks.models.common import int8
from tsfmscope.tasks.models.common.low_rank import compression_entries
from tsfmscope.tasks.models.common.mlp import Mlp, keep_neurons, mlps, neuron_entries

if TYPE_CHECKING:
    from tsfmscope.tasks.compression.calibration import Moments
    from tsfmscope.tasks.models.base import Family
    from tsfmscope.tasks.models.types import Tokens

METHOD = "whole-model"
# Shares of the attention parameters that are tried, by each of the methods of truncation.
SHARES = (0.75, 0.5, 0.35, 0.25, 0.15)
TRUNCATIONS = ("activation-aware", "activation-aware-svd")


class Division(NamedTuple):
    """Share of the attention's parameters that is kept, and the method that removes the rest.

    At share 1 attention is not truncated. MLPs give what is then missing to the budget.
    """

    share: float
    method: str


DIVISIONS = [Division(1.0, TRUNCATIONS[0]), *(Division(share, name) for share in SHARES for name in TRUNCATIONS)]


def compress(model: Family, method: Mapping[str, Any], parts: Sequence[Tokens]) -> list[dict[str, Any]]:
    """Compress a model in place to a share of its bytes; return a row per part and MLP.

    method: its `ranks` are {"bytes": share of the bytes of the original's weights in a file}. parts: calibration
    windows, as `gather` takes them. The weights are not rounded yet, but fit once they are (`int8.round_weights`).
    BudgetError if no division is small enough. ModelError for a model without MLPs or attention that can be compressed,
    and as in `gather`.
    """
    parts = [tokens for tokens in parts if len(tokens)]
    all_mlps = [mlp for mlp in mlps(model) if mlp.stack in model.stacks]
    if not all_mlps:
        raise ModelError(f"{model.name}: names no MLP whose matrices are Linears; use another method")
    share = method["ranks"]["bytes"]
    total = int8.stored_bytes(model.network, rounded=False)
    target, base = int(share * total), copy.deepcopy(model)
    network: Any = model.network
    full = {mlp.name: int(network.get_submodule(mlp.output).in_features) for mlp in all_mlps}
    try:
        division = _choose(model, method, all_mlps, parts, target)
        rows = _apply(base, model, method, all_mlps, division, gather(model, *parts), parts, target)
    except _TooSmall as error:
        raise BudgetError(f"ranks bytes: got {share}, expected at least {error.least / total:.4f}") from error
    model.compression = {
        **method, **compression_entries(model.attentions()), **neuron_entries(model.network, all_mlps, full)
    }  # fmt: skip
    return rows


class _TooSmall(BudgetError):
    """Error for a target in bytes that a division cannot meet; least: the bytes that it can."""

    def __init__(self, least: int) -> None:
        super().__init__(f"expected at least {least} bytes")
        self.least = least


def _choose(
    model: Family, method: Mapping[str, Any], all_mlps: Sequence[Mlp], parts: Sequence[Tokens], target: int
) -> Division:
    """Return the division with the least held-out error; _TooSmall, of the smallest one, if none meets the target."""
    first, *_ = DIVISIONS
    if int8.stored_bytes(model.network, rounded=True) <= target:
        return first
    errors: dict[Division, list[float]] = {division: [] for division in DIVISIONS}
    least: list[_TooSmall] = []
    for fit, held_out in two_step.folds(parts) or [two_step.Fold(list(parts), list(parts))]:
        moments = gather(model, *fit)
        expected = [last_states(model, tokens) for tokens in held_out]
        for division in list(errors):
            trial = copy.deepcopy(model)
            try:
                _apply(model, trial, method, all_mlps, division, moments, fit, target)
            except BudgetError as error:
                least += [error] if isinstance(error, _TooSmall) else []
                del errors[division]
                continue
            int8.round_weights(trial.network)
            for states, tokens in zip(expected, held_out, strict=True):
                errors[division] += two_step.by_unit(window_errors(trial, states, tokens), tokens)
    if not errors:
        raise min(least, key=lambda error: error.least)
    return min(errors, key=lambda division: float(np.mean(errors[division])))


def _apply(
    base: Family,
    model: Family,
    method: Mapping[str, Any],
    all_mlps: Sequence[Mlp],
    division: Division,
    moments: Mapping[str, Moments],
    parts: Sequence[Tokens],
    target: int,
) -> list[dict[str, Any]]:
    """Truncate attention, remove neurons and fit all outputs to those of `base`, in place; return the rows.

    BudgetError if attention cannot be truncated to the share, _TooSmall if MLPs of one neuron are still too large.
    """
    rows: list[dict[str, Any]] = []
    if division.share < 1:
        univariate = {key: method[key] for key in ("univariate",) if key in method}
        truncated = {"method": division.method, "ranks": {"budget": division.share}, **univariate}
        rows += truncation.compress(model, truncated, moments)
    rows += _remove_neurons(model, all_mlps, parts, target)
    # Experts read the tokens that a router chooses, which differ between the two models.
    fit_outputs(base, model, parts, mlps=[mlp for mlp in all_mlps if not mlp.expert])
    return rows


def _remove_neurons(
    model: Family, all_mlps: Sequence[Mlp], parts: Sequence[Tokens], target: int
) -> list[dict[str, Any]]:
    """Remove neurons until the rounded model has at most `target` bytes, with the least sum of relative errors."""
    quadratics = neurons.gather(model, all_mlps, parts)
    eliminations = {mlp.name: neurons.eliminate(quadratics[mlp.name]) for mlp in all_mlps}
    curves = [Curve(_bytes_by_width(model.network, mlp), eliminations[mlp.name].errors[-2::-1]) for mlp in all_mlps]
    fixed = int8.stored_bytes(model.network, rounded=True) - sum(int(curve.costs[-1]) for curve in curves)
    try:
        widths = allocate(curves, target - fixed)
    except BudgetError:
        raise _TooSmall(fixed + sum(int(curve.costs[0]) for curve in curves)) from None
    rows = []
    for mlp, curve, width in zip(all_mlps, curves, widths, strict=True):
        elimination, quadratic = eliminations[mlp.name], quadratics[mlp.name]
        n_neurons = len(elimination.order)
        # A width that costs no more is at least as good.
        width = int(np.searchsorted(curve.costs, curve.costs[width - 1], side="right"))
        if width < n_neurons:
            kept = elimination.remaining_neurons(width)
            fitted = neurons.best_weights(quadratic, kept)
            bias = fitted[0] if quadratic.n_free else None
            keep_neurons(model.network, mlp, kept, fitted[quadratic.n_free :].T, bias)
        error = float(np.sqrt(elimination.errors[n_neurons - width]))
        identity = {"stack": mlp.stack, "layer": mlp.layer, "attention": None}
        part = ".".join(filter(None, ("mlp", mlp.expert)))
        rows.append({**identity, "part": part, "full_width": n_neurons, "rank": width, "relative_error": error})
    return rows


def _bytes_by_width(network: Any, mlp: Mlp) -> np.ndarray:
    """Return the bytes in a file of an MLP of 1, 2, ... neurons, rounded to eight bits, never decreasing."""
    widths = np.arange(1, network.get_submodule(mlp.output).in_features + 1)
    costs = np.zeros(len(widths), dtype=np.int64)
    for path in (*mlp.inputs, mlp.output):
        linear = network.get_submodule(path)
        is_output = path == mlp.output
        rows, columns = (linear.out_features, widths) if is_output else (widths, linear.in_features)
        costs += np.where(np.asarray(columns) >= int8.SHORTEST, rows * columns + 4 * rows, 4 * rows * columns)
        if linear.bias is not None:
            costs += 4 * np.asarray(rows)
    # A matrix just below SHORTEST columns takes more bytes than one just above.
    return np.minimum.accumulate(costs[::-1])[::-1]

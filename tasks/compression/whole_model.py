"""Compression of a whole model to a share of its bytes: eight bits, narrower heads or thin factors, fewer neurons.

All weights are rounded to eight bits. What is still missing to the requested bytes is removed from attention and from
MLPs. How much each gives is chosen by the error of the last hidden states on calibration windows that did not give
the moments.
"""

from __future__ import annotations

import copy
import math
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
from tsfmscope.tasks.models.common.mlp import Mlp, count_neurons, keep_neurons, neuron_entries

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
    windows, as `gather` takes them. The weights are not rounded yet, but fit once they are (`int8.round_weights`); if
    rounding suffices, nothing is changed. BudgetError if no division is small enough. ModelError for a model without
    MLPs or attention that can be compressed, and as in `gather`.
    """
    parts = [tokens for tokens in parts if len(tokens)]
    all_mlps = [mlp for mlp in neurons.mlps(model) if mlp.stack in model.stacks]
    if not all_mlps:
        raise ModelError(f"{model.name}: names no MLP whose matrices are Linears; use another method")
    share, total = method["ranks"]["bytes"], int8.stored_bytes(model.network, rounded=False)
    search = _Search(copy.deepcopy(model), method, all_mlps, int(share * total))
    if int8.stored_bytes(model.network, rounded=True) <= search.target:
        rows = [_row(mlp, full := count_neurons(model.network, mlp), full, 0.0) for mlp in all_mlps]
    else:
        statistics = search.statistics(parts)
        sizes = {division: search.least_bytes(division, statistics) for division in DIVISIONS}
        fitting = [division for division in DIVISIONS if sizes[division] <= search.target]
        if not fitting:
            # Rounded up, so that the number can be asked for.
            least = math.ceil((min(sizes.values()) + 1) / total * 1e4) / 1e4
            raise BudgetError(f"ranks bytes: got {share}, expected at least {least:.4f}")
        rows = search.apply(model, search.choose(fitting, parts), statistics)
    model.compression = {
        **method,
        **compression_entries(model.attentions()),
        **neuron_entries(model.network, search.base.network, all_mlps),
    }
    return rows


class _Statistics(NamedTuple):
    """Calibration windows, the moments of attention layers, and the eliminations of MLPs, both by name."""

    parts: Sequence[Tokens]
    moments: Mapping[str, Moments]
    eliminations: Mapping[str, neurons.Elimination]


class _Search(NamedTuple):
    """A model before compression, its method and its MLPs, and the bytes of the rounded model to reach."""

    base: Family
    method: Mapping[str, Any]
    all_mlps: Sequence[Mlp]
    target: int

    def statistics(self, parts: Sequence[Tokens]) -> _Statistics:
        """Return the statistics of the base.

        All divisions share the order of the neurons: truncated attention changes the neurons little, and the outputs
        are fitted afterwards.
        """
        moments, losses = gather(self.base, *parts), neurons.gather_losses(self.base, self.all_mlps, parts)
        return _Statistics(parts, moments, {name: neurons.eliminate(loss) for name, loss in losses.items()})

    def least_bytes(self, division: Division, statistics: _Statistics) -> float:
        """Return the bytes with one neuron in every MLP; infinity if attention cannot be truncated that far."""
        trial = copy.deepcopy(self.base)
        try:
            self._truncate(trial, division, statistics)
        except BudgetError:
            return math.inf
        costs = [_bytes_by_width(trial.network, mlp) for mlp in self.all_mlps]
        return int8.stored_bytes(trial.network, rounded=True) - sum(int(cost[-1] - cost[0]) for cost in costs)

    def choose(self, divisions: Sequence[Division], parts: Sequence[Tokens]) -> Division:
        """Return the division with the least error on windows that did not give the statistics."""
        if len(divisions) == 1:
            return divisions[0]
        errors: dict[Division, list[float]] = {division: [] for division in divisions}
        for fit, held_out in two_step.folds(parts) or [two_step.Fold(list(parts), list(parts))]:
            statistics = self.statistics(fit)
            expected = [last_states(self.base, tokens) for tokens in held_out]
            for division in divisions:
                trial = copy.deepcopy(self.base)
                self.apply(trial, division, statistics)
                int8.round_weights(trial.network)
                for states, tokens in zip(expected, held_out, strict=True):
                    errors[division] += two_step.by_unit(window_errors(trial, states, tokens), tokens)
        return min(divisions, key=lambda division: float(np.mean(errors[division])))

    def apply(self, model: Family, division: Division, statistics: _Statistics) -> list[dict[str, Any]]:
        """Truncate attention, remove neurons and fit all outputs to those of the base, in place; return the rows."""
        rows = self._truncate(model, division, statistics) + self._remove_neurons(model, statistics)
        # Experts read the tokens that a router chooses, which differ between the two models.
        fitted = [mlp for mlp in self.all_mlps if not mlp.expert]
        fit_outputs(self.base, model, statistics.parts, mlps=fitted)
        return rows

    def _truncate(self, model: Family, division: Division, statistics: _Statistics) -> list[dict[str, Any]]:
        """Truncate attention in place; return the rows. BudgetError if rank 1 of everything exceeds the share."""
        if division.share == 1:
            return []
        univariate = {key: self.method[key] for key in ("univariate",) if key in self.method}
        truncated = {"method": division.method, "ranks": {"budget": division.share}, **univariate}
        return truncation.compress(model, truncated, statistics.moments)

    def _remove_neurons(self, model: Family, statistics: _Statistics) -> list[dict[str, Any]]:
        """Remove neurons until the rounded model has the target's bytes, with the least sum of relative errors.

        If that cannot be reached, which moments of other windows may cause, one neuron of every MLP remains.
        """
        eliminations = [statistics.eliminations[mlp.name] for mlp in self.all_mlps]
        curves = [
            Curve(_bytes_by_width(model.network, mlp), elimination.errors[-2::-1])
            for mlp, elimination in zip(self.all_mlps, eliminations, strict=True)
        ]
        fixed = int8.stored_bytes(model.network, rounded=True) - sum(int(curve.costs[-1]) for curve in curves)
        widths = allocate(curves, max(self.target - fixed, sum(int(curve.costs[0]) for curve in curves)))
        rows = []
        for mlp, elimination, curve, width in zip(self.all_mlps, eliminations, curves, widths, strict=True):
            loss, full = elimination.loss, len(elimination.order)
            # A width that costs no more is at least as good.
            width = int(np.searchsorted(curve.costs, curve.costs[width - 1], side="right"))
            if width < full:
                remaining = elimination.remaining_neurons(width)
                weights = neurons.best_weights(loss, remaining)
                bias = weights[0] if loss.n_free else None
                keep_neurons(model.network, mlp, remaining, weights[loss.n_free :].T, bias)
            rows.append(_row(mlp, full, width, float(np.sqrt(elimination.errors[full - width]))))
        return rows


def _row(mlp: Mlp, full: int, width: int, error: float) -> dict[str, Any]:
    """Return the row of the table `compressed_heads` of an MLP."""
    identity = {"stack": mlp.stack, "layer": mlp.layer, "attention": None}
    part = ".".join(filter(None, ("mlp", mlp.expert)))
    return {**identity, "part": part, "full_width": full, "rank": width, "relative_error": error}


def _bytes_by_width(network: Any, mlp: Mlp) -> np.ndarray:
    """Return the bytes in a file of an MLP of 1, 2, ... neurons, rounded to eight bits, never decreasing."""
    widths = np.arange(1, count_neurons(network, mlp) + 1)
    costs = np.zeros(len(widths), dtype=np.int64)
    for path in (*mlp.inputs, mlp.output):
        linear = network.get_submodule(path)
        is_output = path == mlp.output
        rows, columns = (linear.out_features, widths) if is_output else (widths, linear.in_features)
        costs += int8.matrix_bytes(rows, columns)
        if linear.bias is not None:
            costs += 4 * np.asarray(rows)
    # A matrix of just below int8.SHORTEST columns takes more bytes than one just above.
    return np.minimum.accumulate(costs[::-1])[::-1]

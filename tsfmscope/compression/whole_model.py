"""Compression of a whole model to a share of its bytes or seconds: narrower heads or thin factors, fewer neurons.

For a share of the bytes, all weights are rounded to eight bits, and what is still missing is removed from attention and
from MLPs. For a share of the seconds of a forecast, parts of attention and of MLPs are removed until a measurement
meets it. How much each gives is chosen by the error of the last hidden states on calibration windows that did not
give the moments.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tsfmscope.compression import refit, truncation, two_step
from tsfmscope.compression.budget import PAIRS, BudgetError, Curve, allocate, compare_seconds, forecast_seconds
from tsfmscope.compression.calibration import gather
from tsfmscope.compression.fidelity import last_states, window_errors
from tsfmscope.compression.options import Method, Ranks
from tsfmscope.compression.refit import fit_outputs
from tsfmscope.errors import ModelError
from tsfmscope.models.common import int8
from tsfmscope.models.common.compression_block import Mlp, count_neurons, keep_neurons, neuron_entries
from tsfmscope.models.common.layers import compression_entries

if TYPE_CHECKING:
    from tsfmscope.compression.calibration import Moments
    from tsfmscope.models.base import Family
    from tsfmscope.models.types import Tokens
    from tsfmscope.series.types import Windows

# Shares of the attention parameters that are tried, by each of the methods of truncation.
SHARES = (0.75, 0.5, 0.35, 0.25, 0.15)
TRUNCATIONS = ("activation-aware", "activation-aware-svd")
# Shares of the bytes of MLPs that are tried for a budget in seconds, the largest first.
MLP_SHARES = (1.0, 0.75, 0.5, 0.25, 0.1)
# Number of windows that are forecast together when a budget in seconds is measured.
TIMED = 32


class Division(NamedTuple):
    """Share of the attention's parameters that is kept, and the method that removes the rest.

    At share 1 attention is not truncated. mlps: share of the bytes of MLPs that is kept; None: MLPs give what is then
    missing to a budget in bytes.
    """

    share: float
    method: str
    mlps: float | None = None

    def __str__(self) -> str:
        """Return the shares in words."""
        attention = "all" if self.share == 1 else f"{self.share:g} ({self.method})"
        mlps = "what is missing" if self.mlps is None else f"{self.mlps:g}"
        return f"{attention} of attention and {mlps} of the MLPs"


DIVISIONS = [Division(1.0, TRUNCATIONS[0]), *(Division(share, name) for share in SHARES for name in TRUNCATIONS)]


def compress(
    model: Family, method: Method, parts: Sequence[Tokens], timed: Windows | None = None
) -> list[dict[str, Any]]:
    """Compress a model in place to a share of its bytes or seconds; return a row per part and MLP.

    parts: calibration windows, as `gather` takes them. timed: windows whose forecast is timed;
    needed for `time`. The weights are not rounded yet. With `bytes` they fit once they are (`int8.round_weights`); if
    rounding suffices, nothing is changed. BudgetError if no division is small or fast enough. ModelError for a model
    without MLPs or attention that can be compressed, and as in `gather`.
    """
    parts = [tokens for tokens in parts if len(tokens)]
    all_mlps = [mlp for mlp in refit.find_mlps(model) if mlp.stack in model.stacks]
    if not all_mlps:
        raise ModelError(f"{model.name}: names no MLP whose matrices are Linears; use another method")
    rule, share = method.ranks.rule
    total = int8.stored_bytes(model.network, rounded=False)
    search = _Search(copy.deepcopy(model), method, all_mlps, int(share * total))
    if rule == "time":
        assert timed is not None, "a budget in seconds needs windows to time"
        statistics = search.statistics(parts)
        rows = search.apply(model, search.choose_fast(share, parts, statistics, timed), statistics)
    elif int8.stored_bytes(model.network, rounded=True) <= search.target:
        rows = [_row(mlp, full := count_neurons(model.network, mlp), full, 0.0) for mlp in all_mlps]
    else:
        statistics = search.statistics(parts)
        sizes = {division: search.least_bytes(division, statistics) for division in DIVISIONS}
        fitting = [division for division in DIVISIONS if sizes[division] <= search.target]
        if not fitting:
            # Rounded up, so that the number can be asked for.
            least = math.ceil((min(sizes.values()) + 1) / total * 1e4) / 1e4
            raise BudgetError(f"ranks bytes: got {share}, expected at least {least:.4f}")
        rows = search.apply(model, search.by_error(fitting, parts)[0], statistics)
    model.compression = {
        **method.to_dict(),
        **compression_entries(model.attentions()),
        **neuron_entries(model.network, search.base.network, all_mlps),
    }
    return rows


class _Statistics(NamedTuple):
    """Calibration windows, the moments of attention layers, and the eliminations of MLPs, both by name."""

    parts: Sequence[Tokens]
    moments: Mapping[str, Moments]
    eliminations: Mapping[str, refit.Elimination]


class _Search(NamedTuple):
    """A model before compression, its method, its MLPs, and the rounded bytes to reach for `bytes`."""

    base: Family
    method: Method
    all_mlps: Sequence[Mlp]
    target: int

    def statistics(self, parts: Sequence[Tokens]) -> _Statistics:
        """Return the statistics of the base.

        All divisions share the order of the neurons: truncated attention changes the neurons little, and the outputs
        are fitted afterwards.
        """
        moments, losses = gather(self.base, *parts), refit.gather_losses(self.base, self.all_mlps, parts)
        return _Statistics(parts, moments, {name: refit.eliminate(loss) for name, loss in losses.items()})

    def least_bytes(self, division: Division, statistics: _Statistics) -> float:
        """Return the bytes with one neuron in every MLP; infinity if attention cannot be truncated that far."""
        trial = copy.deepcopy(self.base)
        try:
            self._truncate(trial, division, statistics)
        except BudgetError:
            return math.inf
        costs = [_bytes_by_width(trial.network, mlp) for mlp in self.all_mlps]
        return int8.stored_bytes(trial.network, rounded=True) - sum(int(cost[-1] - cost[0]) for cost in costs)

    def choose_fast(self, share: float, parts: Sequence[Tokens], statistics: _Statistics, timed: Windows) -> Division:
        """Return the division with the least error of those that take at most this share of the base's seconds.

        Every division of attention keeps the largest of MLP_SHARES with which it is fast enough. The chosen one is
        measured again, with three times the pairs, since the first measurements favour lucky ones. If it is not fast
        enough then, smaller MLPs are tried, and then the division with the next larger error.
        """
        if share == 1:
            return Division(1.0, TRUNCATIONS[0], 1.0)
        measured: dict[Division, float] = {}

        def is_fast(division: Division, pairs: int = PAIRS) -> bool:
            measured[division] = self._time_ratio(division, statistics, timed, pairs)
            return measured[division] <= share

        fast = []
        for division in DIVISIONS:
            widths = [division._replace(mlps=mlps) for mlps in MLP_SHARES]
            # What is not fast enough with the smallest MLPs is not measured with larger ones.
            if is_fast(widths[-1]):
                fast.append(next(filter(is_fast, widths[:-1]), widths[-1]))
        for division in self.by_error(fast, parts):
            # All that were fast enough are measured again, so that the least share of the error is above the budget.
            shares = MLP_SHARES[MLP_SHARES.index(division.mlps or 1.0) :]
            smaller = [division._replace(mlps=mlps) for mlps in shares]
            if confirmed := next((one for one in smaller if is_fast(one, 3 * PAIRS)), None):
                return confirmed
        fastest = min(measured, key=lambda division: measured[division])
        least = math.ceil(100 * measured[fastest]) / 100
        raise BudgetError(
            f"ranks time: got {share:g} of the seconds of a forecast, expected at least {least:g}, measured with "
            f"{fastest} left; ask for more, or measure `export --onnx`, which is often faster"
        )

    def _time_ratio(self, division: Division, statistics: _Statistics, timed: Windows, pairs: int) -> float:
        """Return the measured seconds over those of the base; infinity if attention cannot be truncated that far."""
        if division.share == division.mlps == 1:
            return 1.0
        trial = copy.deepcopy(self.base)
        try:
            self._truncate(trial, division, statistics)
        except BudgetError:
            return math.inf
        self._remove_neurons(trial, statistics, division.mlps)
        return compare_seconds(forecast_seconds(timed), self.base, trial, rounds=pairs).ratio

    def by_error(self, divisions: Sequence[Division], parts: Sequence[Tokens]) -> list[Division]:
        """Return the divisions, ascending by their error on windows that did not give the statistics."""
        if len(divisions) <= 1:
            return list(divisions)
        errors: dict[Division, list[float]] = {division: [] for division in divisions}
        for fit, held_out in two_step.folds(parts) or [(list(parts), list(parts))]:
            statistics = self.statistics(fit)
            expected = [last_states(self.base, tokens) for tokens in held_out]
            for division in divisions:
                trial = copy.deepcopy(self.base)
                self.apply(trial, division, statistics)
                if self.method.bits == int8.BITS:
                    int8.round_weights(trial.network)
                for states, tokens in zip(expected, held_out, strict=True):
                    errors[division] += two_step.by_unit(window_errors(trial, states, tokens), tokens)
        return sorted(divisions, key=lambda division: float(np.mean(errors[division])))

    def apply(self, model: Family, division: Division, statistics: _Statistics) -> list[dict[str, Any]]:
        """Truncate attention, remove neurons and fit all outputs to those of the base, in place; return the rows."""
        rows = self._truncate(model, division, statistics)
        rows += self._remove_neurons(model, statistics, division.mlps)
        # Experts read the tokens that a router chooses, which differ between the two models.
        fitted = [mlp for mlp in self.all_mlps if not mlp.expert]
        fit_outputs(self.base, model, statistics.parts, mlps=fitted)
        return rows

    def _truncate(self, model: Family, division: Division, statistics: _Statistics) -> list[dict[str, Any]]:
        """Truncate attention in place; return the rows. BudgetError if rank 1 of everything exceeds the share."""
        if division.share == 1:
            return []
        truncated = self.method.model_copy(update={"method": division.method, "ranks": Ranks(budget=division.share)})
        return truncation.compress(model, truncated, statistics.moments)

    def _remove_neurons(
        self, model: Family, statistics: _Statistics, share: float | None = None
    ) -> list[dict[str, Any]]:
        """Remove neurons, with the least sum of relative errors, until MLPs keep this share of their bytes.

        Without a share, until the rounded model has the target's bytes. If that cannot be reached, which moments of
        other windows may cause, one neuron of every MLP remains.
        """
        eliminations = [statistics.eliminations[mlp.name] for mlp in self.all_mlps]
        curves = [
            Curve(_bytes_by_width(model.network, mlp), elimination.errors[-2::-1])
            for mlp, elimination in zip(self.all_mlps, eliminations, strict=True)
        ]
        full, least = (sum(int(curve.costs[index]) for curve in curves) for index in (-1, 0))
        if share is None:
            allowed = self.target - (int8.stored_bytes(model.network, rounded=True) - full)
        else:
            allowed = int(share * full)
        widths = allocate(curves, max(allowed, least))
        rows = []
        for mlp, elimination, curve, width in zip(self.all_mlps, eliminations, curves, widths, strict=True):
            loss, n_full = elimination.loss, len(elimination.order)
            # A width that costs no more is at least as good.
            width = int(np.searchsorted(curve.costs, curve.costs[width - 1], side="right"))
            if width < n_full:
                remaining = elimination.remaining_neurons(width)
                weights = refit.best_weights(loss, remaining)
                bias = weights[0] if loss.n_free else None
                keep_neurons(model.network, mlp, remaining, weights[loss.n_free :].T, bias)
            rows.append(_row(mlp, n_full, width, float(np.sqrt(elimination.errors[n_full - width]))))
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

"""Budgets of parameters or of measured seconds, spent over many parts with the least error.

Costs of a part grow and its errors shrink with its rank. Seconds are measured on one machine at one moment, so ranks
that depend on them are not reproducible.
"""

from __future__ import annotations

import copy
import heapq
import time
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, NoReturn

import numpy as np
from jaxtyping import Float, Int
from scipy.stats import binom

from tsfmscope.models.base import Forecaster
from tsfmscope.models.common.attention import AttentionLayer, Widths

if TYPE_CHECKING:
    from tsfmscope.models.base import Family
    from tsfmscope.series.types import Windows

# Measured shares of a head's width, each at least one dimension; times between them are interpolated linearly.
SHARES = (0.0, 0.125, 0.25, 0.5)
# Timed runs, of which the fastest counts, since other load on the machine can only add time.
ROUNDS = 3
# Pairs of runs whose median ratio is taken.
PAIRS = 7
# Nanoseconds per second: a budget counts in integers.
TICK = 1e9


class BudgetError(ValueError):
    """Error for a budget that is too small even for rank 1 of every part."""


class Curve(NamedTuple):
    """Cost (never decreasing) and error (never increasing) of one part by rank 1, 2, ..."""

    costs: Int[np.ndarray, " rank"]
    errors: Float[np.ndarray, " rank"]


def allocate(curves: Sequence[Curve], budget: int) -> list[int]:
    """Return one rank per part, at least 1, for the least summed error within the budget, by a greedy search.

    Starting at rank 1, the search repeatedly takes the step with the largest gain over cost; a step may span
    several ranks if the budget allows it. The result is optimal where every rank costs the same and gains
    never grow, as with squared singular values. Elsewhere its error exceeds the optimum by less than the gain
    of one step. BudgetError if rank 1 of every part exceeds the budget.
    """
    remaining = budget - sum(int(curve.costs[0]) for curve in curves)
    if remaining < 0:
        refuse(budget, budget - remaining)
    ranks = [1] * len(curves)
    heap = [step for index, curve in enumerate(curves) if (step := _best(index, curve, 1, remaining))]
    heapq.heapify(heap)
    while heap:
        _, index, rank = heapq.heappop(heap)
        curve, now = curves[index], ranks[index]
        cost = int(curve.costs[rank - 1] - curve.costs[now - 1])
        if cost <= remaining:
            ranks[index], remaining = rank, remaining - cost
        # The best step within the rest of the budget.
        if step := _best(index, curve, ranks[index], remaining):
            heapq.heappush(heap, step)
    return ranks


class Spectrum(NamedTuple):
    """Costs of one part by rank 1, 2, ... (never decreasing), and its singular values (empty if idle)."""

    costs: Int[np.ndarray, " rank"]
    values: Float[np.ndarray, " value"]


def allocate_by_tolerance(spectra: Sequence[Spectrum], budget: int) -> list[int]:
    """Return the numerical rank of every part, at least 1, at the smallest tolerance within the budget.

    Source: Yu et al. 2026, Table 2, where every matrix is truncated to its numerical rank at one tolerance ε.
    Deviations: the paper gives ε, while here it is found by bisection. A part without values stays at rank 1.
    A part whose rank costs as much as its full rank gets the full rank.
    BudgetError if rank 1 of every part exceeds the budget.
    """
    relative = [
        spectrum.values / spectrum.values.max() if spectrum.values.any() else spectrum.values[:0]
        for spectrum in spectra
    ]
    tolerances = np.unique(np.concatenate([[0.0, 1.0], *relative]))

    def ranks_at(tolerance: float) -> list[int]:
        counts = [max(1, int(np.count_nonzero(values > tolerance))) for values in relative]
        return [widest(spectrum.costs, count) for spectrum, count in zip(spectra, counts, strict=True)]

    def is_within(tolerance: float) -> bool:
        ranks = zip(spectra, ranks_at(tolerance), strict=True)
        return sum(int(spectrum.costs[rank - 1]) for spectrum, rank in ranks) <= budget

    if not is_within(1.0):
        refuse(budget, sum(int(spectrum.costs[0]) for spectrum in spectra))
    first = bisect_left(tolerances, True, key=is_within)
    return ranks_at(float(tolerances[first]))


def widest(costs: np.ndarray, rank: int) -> int:
    """Return the full rank if it costs as much as this rank, else this rank."""
    return len(costs) if costs[rank - 1] == costs[-1] else rank


def refuse(budget: int, least: int) -> NoReturn:
    """Raise BudgetError for a budget below the cost of rank 1 of every part."""
    raise BudgetError(f"budget: got {budget}, expected at least {least}, the cost of rank 1 of every part")


def _best(index: int, curve: Curve, rank: int, remaining: int) -> tuple[float, int, int] | None:
    """Return the next step of a part as (-gain over cost, index, new rank), or None if no step gains.

    The shortest of several equal steps is taken.
    """
    costs = curve.costs[rank:] - curve.costs[rank - 1]
    gains = curve.errors[rank - 1] - curve.errors[rank:]
    worth = np.where((costs <= remaining) & (gains > 0), gains, 0.0) / np.maximum(costs, 1e-9)
    if not len(worth) or worth.max() <= 0:
        return None
    best = int(np.argmax(worth))
    return -float(worth[best]), index, rank + best + 1


class SavedSeconds(NamedTuple):
    """Seconds saved by narrower heads.

    total: seconds of the unchanged model. by_layer: attention layer -> seconds saved with heads of width 1,
    2, ..., full.
    """

    total: float
    by_layer: Mapping[str, Float[np.ndarray, " width"]]


def measure(model: Family, seconds: Callable[[Family], float], *, rounds: int = ROUNDS) -> SavedSeconds:
    """Time the model with narrowed heads, one kind of attention at a time; return the seconds saved.

    seconds: function that runs a model and returns its seconds, such as `forecast_seconds`; the first run is
    a warm-up.
    A kind of attention belongs to one stack: encoder self-, decoder self- or decoder cross-attention. Its
    saving is divided evenly among its layers, and the savings of several kinds are assumed to add up. The
    narrowed copies keep the first dimensions of every head, which are as fast as any others. The model itself
    stays unchanged.
    """
    groups: dict[tuple[str, str], list[AttentionLayer]] = {}
    for layer in model.attentions():
        groups.setdefault((layer.stack, layer.kind), []).append(layer)
    seconds(model)
    total, times = np.inf, {group: np.full(len(SHARES), np.inf) for group in groups}
    for _ in range(rounds):
        total = min(total, seconds(model))
        for group, best in times.items():
            for index, share in enumerate(SHARES):
                best[index] = min(best[index], seconds(_narrow(model, group, share)))
    saved_seconds: dict[str, np.ndarray] = {}
    for group, layers in groups.items():
        saved_by_share = np.append(np.maximum(total - times[group], 0.0), 0.0) / len(layers)
        # A narrower head counts as no slower than a wider one, since the wider one could be used in
        # its place.
        saved_by_share = np.maximum.accumulate(saved_by_share[::-1])[::-1]
        for layer in layers:
            widths_at_shares = [_width(layer, share) for share in (*SHARES, 1.0)]
            widths, at = np.unique(widths_at_shares, return_index=True)
            saved_seconds[layer.name] = np.interp(np.arange(1, _full(layer) + 1), widths, saved_by_share[at])
            saved_seconds[layer.name][-1] = 0.0
    return SavedSeconds(float(total), saved_seconds)


def forecast_seconds(windows: Windows) -> Callable[[Family], float]:
    """Return a function that times a forecast of these windows, or one pass if the family cannot forecast."""

    def seconds(model: Family) -> float:
        began = time.perf_counter()
        if isinstance(model, Forecaster):
            model.forecast(windows, seeds=list(range(len(windows))))
        else:
            for _ in model.hidden_states(model.tokenize(windows)):
                pass
        return time.perf_counter() - began

    return seconds


class PairedSeconds(NamedTuple):
    """Seconds of two models: the fastest run of each, and the median ratio, small over base, of runs in pairs.

    low, high: interval of the median ratio, of at least 95 %, from order statistics of the pairs (sign test).
    """

    base: float
    small: float
    ratio: float
    low: float
    high: float


def compare_seconds(
    seconds: Callable[[Family], float], base: Family, small: Family, *, rounds: int = PAIRS
) -> PairedSeconds:
    """Time two models in turn, after one run of each that does not count; return the seconds and their ratio.

    seconds: as in `measure`. Other load mostly slows both runs of a pair; the median leaves out where it slowed one.
    """
    seconds(base)
    seconds(small)
    of_base, of_small = np.array([(seconds(base), seconds(small)) for _ in range(rounds)]).T
    return PairedSeconds(float(of_base.min()), float(of_small.min()), *median_ratio(of_base, of_small))


class MedianRatio(NamedTuple):
    """Median of the ratios of pairs, and its interval of at least 95 %, from order statistics (sign test)."""

    ratio: float
    low: float
    high: float


def median_ratio(of_base: Float[np.ndarray, " pair"], of_other: Float[np.ndarray, " pair"]) -> MedianRatio:
    """Return the median ratio of pairs, other over base.

    With 6 to 8 pairs the interval is their range. With 5 and fewer it is the range too, which has less than 95 %.
    """
    ratios, count = np.sort(of_other / of_base), len(of_base)
    left_out = max(0, int(binom.ppf(0.025, count, 0.5)) - 1)
    return MedianRatio(float(np.median(ratios)), float(ratios[left_out]), float(ratios[count - 1 - left_out]))


def fastest(run: Callable[[], object], *, rounds: int = ROUNDS) -> float:
    """Return the seconds of the fastest of `rounds` runs, after one that is not timed."""
    run()
    seconds = []
    for _ in range(rounds):
        began = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - began)
    return min(seconds)


def _narrow(model: Family, group: tuple[str, str], share: float) -> Family:
    """Return a copy in which the heads of one kind of attention keep this share of their width."""
    small = copy.copy(model)
    small.network = copy.deepcopy(model.network)
    for layer in small.attentions():
        if (layer.stack, layer.kind) == group:
            projections, width = layer.read(), _width(layer, share)
            key = min(width, projections.widths.key) if layer.plain else projections.widths.key
            layer.write(projections.slice_heads(Widths(key, min(width, projections.widths.value))))
    return small


def _full(layer: AttentionLayer) -> int:
    widths = layer.widths
    return max(widths) if layer.plain else widths.value


def _width(layer: AttentionLayer, share: float) -> int:
    return max(1, round(share * _full(layer)))

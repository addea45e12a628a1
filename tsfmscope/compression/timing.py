"""Measured time savings of narrower heads, and ranks of least error within a time budget.

Seconds are measured on one machine at one moment, so ranks that depend on them are not reproducible.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.stats import binom

from tsfmscope.compression.budget import Curve, allocate
from tsfmscope.models.base import Forecaster
from tsfmscope.models.common.attention import AttentionLayer, Widths

if TYPE_CHECKING:
    from tsfmscope.compression.candidates import Candidate
    from tsfmscope.models.base import Family
    from tsfmscope.series.types import Windows

# Measured shares of a head's width, each at least one dimension; times between them are interpolated
# linearly.
SHARES = (0.0, 0.125, 0.25, 0.5)
# Timed runs, of which the fastest counts, since other load on the machine can only add time.
ROUNDS = 3
# Pairs of runs whose median ratio is taken.
PAIRS = 7
# Nanoseconds per second: a budget counts in integers.
TICK = 1e9


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
    pairs = np.array([(seconds(base), seconds(small)) for _ in range(rounds)])
    least, ratios = pairs.min(axis=0), np.sort(pairs[:, 1] / pairs[:, 0])
    # Of 7 pairs, this is the range (98 %); of 5 and fewer, the range has less than 95 %.
    left_out = max(0, int(binom.ppf(0.025, rounds, 0.5)) - 1)
    low, high = ratios[left_out], ratios[rounds - 1 - left_out]
    return PairedSeconds(float(least[0]), float(least[1]), float(np.median(ratios)), float(low), float(high))


def fastest(run: Callable[[], object], *, rounds: int = ROUNDS) -> float:
    """Return the seconds of the fastest of `rounds` runs, after one that is not timed."""
    run()
    seconds = []
    for _ in range(rounds):
        began = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - began)
    return min(seconds)


def allocate_within(share: float, candidates: Sequence[Candidate], saved_seconds: SavedSeconds) -> list[int]:
    """Return one rank per candidate and one width per layer: least summed error within a share of the seconds.

    The rule is that of `budget.allocate`, with measured seconds as costs. candidates: of products of
    heads, since those of whole matrices make no head narrower. ValueError for a share that even heads of one dimension
    exceed.
    """
    by_layer: dict[str, list[Candidate]] = {}
    for candidate in candidates:
        by_layer.setdefault(candidate.layer.name, []).append(candidate)
    # By width: the nanoseconds added to heads of one dimension, and the summed errors.
    curves = []
    for name, parts in by_layer.items():
        saved = saved_seconds.by_layer[name]
        widths = np.arange(len(saved))
        errors = np.sum([part.curve().errors[np.minimum(widths, part.full - 1)] for part in parts], axis=0)
        curves.append(Curve(np.floor((saved[0] - saved) * TICK).astype(np.int64), errors))
    least = saved_seconds.total - sum(float(saved_seconds.by_layer[name][0]) for name in by_layer)
    if share * saved_seconds.total < least:
        raise ValueError(
            f"ranks time: got {share} of {saved_seconds.total:.3g} s, expected at least "
            f"{least / saved_seconds.total:.4f}, the share of heads of one dimension"
        )
    remaining = max(0, int((share * saved_seconds.total - least) * TICK))
    ranks = dict(zip(by_layer, allocate(curves, remaining), strict=True))
    return [min(ranks[candidate.layer.name], candidate.full) for candidate in candidates]


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

"""What narrower heads save of a forecast's seconds, measured in place, and ranks of least error within a share of them.

Measured seconds are of one machine at one moment: ranks that follow from them need not be the same twice.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from jaxtyping import Float

from tasks.compression.budget import Curve, allocate
from tasks.models.attention import AttentionLayer, Widths
from tasks.models.base import Forecaster

if TYPE_CHECKING:
    from tasks.compression.choices import Choice
    from tasks.models.base import Family
    from tasks.series.types import Windows

SHARES = (0.0, 0.125, 0.25, 0.5)  # of a head's width that are measured, at least one dimension; between them a line
ROUNDS = 3  # of which the fastest counts: what else a machine does only adds
TICK = 1e9  # a second in the whole numbers that a budget counts in, nanoseconds


class Saved(NamedTuple):
    """whole: seconds of the model as it is. by_layer: attention layer -> seconds less at heads 1, 2, ... full wide."""

    whole: float
    by_layer: Mapping[str, Float[np.ndarray, " width"]]


def measure(model: Family, seconds: Callable[[Family], float], *, rounds: int = ROUNDS) -> Saved:
    """Time the model with the heads of one kind of attention narrowed at a time; its layers save alike.

    seconds: of a run of a model, such as `forecast_seconds`; one run goes first that does not count. Kinds of attention
    are those of a stack (encoder's self, decoder's self, decoder's cross); what several save is taken as their sum.
    Random parts of a head are as fast as chosen ones: the first dimensions are kept. The model itself stays.
    """
    groups: dict[tuple[str, str], list[AttentionLayer]] = {}
    for layer in model.attentions():
        groups.setdefault((layer.stack, layer.kind), []).append(layer)
    seconds(model)
    whole, times = np.inf, {group: np.full(len(SHARES), np.inf) for group in groups}
    for _ in range(rounds):
        whole = min(whole, seconds(model))
        for group, found in times.items():
            for index, share in enumerate(SHARES):
                found[index] = min(found[index], seconds(_narrowed(model, group, share)))
    saved: dict[str, np.ndarray] = {}
    for group, layers in groups.items():
        less = np.append(np.maximum(whole - times[group], 0.0), 0.0) / len(layers)
        less = np.maximum.accumulate(less[::-1])[::-1]  # narrower is never slower: the wider width can be had instead
        for layer in layers:
            measured = [_width(layer, share) for share in (*SHARES, 1.0)]
            widths, at = np.unique(measured, return_index=True)
            saved[layer.name] = np.interp(np.arange(1, _full(layer) + 1), widths, less[at])
            saved[layer.name][-1] = 0.0
    return Saved(float(whole), saved)


def forecast_seconds(windows: Windows) -> Callable[[Family], float]:
    """Seconds of a forecast of these windows; of one pass over them where a family forecasts nothing."""

    def seconds(model: Family) -> float:
        began = time.perf_counter()
        if isinstance(model, Forecaster):
            model.forecast(windows, seeds=list(range(len(windows))))
        else:
            for _ in model.hidden_states(model.tokenize(windows)):
                pass
        return time.perf_counter() - began

    return seconds


def within(share: float, choices: Sequence[Choice], saved: Saved) -> list[int]:
    """A rank of every choice, all parts of a layer the same: least summed error in a share of the seconds.

    The rule is that of `budget.allocate` over measured seconds. ValueError for a share that heads of one dimension
    exceed, or choices of matrices, which make no head narrower.
    """
    if not 0 < share <= 1:
        raise ValueError(f"ranks time: got {share}, expected above 0 and at most 1")
    by_layer: dict[str, list[Choice]] = {}
    for one in choices:
        if one.parts[0] not in ("qk", "vo"):
            raise ValueError(f"ranks time: got a method that cuts {one.parts}, expected one of products of heads")
        by_layer.setdefault(one.layer.name, []).append(one)
    curves = [_curve(parts, saved.by_layer[name]) for name, parts in by_layer.items()]
    least = saved.whole - sum(float(saved.by_layer[name][0]) for name in by_layer)
    if share * saved.whole < least:
        raise ValueError(
            f"ranks time: got {share} of {saved.whole:.3g} s, expected at least {least / saved.whole:.4f}, which heads "
            "of one dimension take"
        )
    left = max(0, int((share * saved.whole - least) * TICK))
    ranks = dict(zip(by_layer, allocate(curves, left), strict=True))
    return [min(ranks[one.layer.name], one.full) for one in choices]


def _curve(parts: Iterable[Choice], saved: np.ndarray) -> Curve:
    """Nanoseconds above those of heads of one dimension, and summed errors, by width."""
    costs = np.floor((saved[0] - saved) * TICK).astype(np.int64)
    errors = np.zeros(len(saved))
    for one in parts:
        own = one.curve().errors
        errors += own[np.minimum(np.arange(len(saved)), one.full - 1)]
    return Curve(costs, errors)


def _narrowed(model: Family, group: tuple[str, str], share: float) -> Family:
    """A copy whose heads of one kind are this share of their width."""
    small = copy.copy(model)
    small.network = copy.deepcopy(model.network)
    for layer in small.attentions():
        if (layer.stack, layer.kind) == group:
            read, width = layer.read(), _width(layer, share)
            key = min(width, read.widths.key) if layer.plain else read.widths.key
            layer.write(read.sliced(Widths(key, min(width, read.widths.value))))
    return small


def _full(layer: AttentionLayer) -> int:
    widths = layer.widths
    return max(widths) if layer.plain else widths.value


def _width(layer: AttentionLayer, share: float) -> int:
    return max(1, round(share * _full(layer)))

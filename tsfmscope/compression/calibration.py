"""Calibration: its windows, and the second moments of the inputs of attention layers from one pass over them.

Windows are cut from series outside the held-out share, or from synthetic series.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Bool, Float

from tsfmscope.compression.options import Calibration
from tsfmscope.errors import DataError, HealthError, ModelError
from tsfmscope.models.common.attention import AttentionLayer, Projections
from tsfmscope.models.common.capture import capture
from tsfmscope.models.types import TokenKind, Tokens
from tsfmscope.ranks.tall import TallQR
from tsfmscope.series.synthetic.priors import draw_priors
from tsfmscope.series.tables import table_series
from tsfmscope.series.types import Series, digests
from tsfmscope.series.windows import MIN_CONTEXT, last_windows, spread_windows

if TYPE_CHECKING:
    import pyarrow as pa
    import torch

    from tsfmscope.models.base import Family
    from tsfmscope.series.types import Windows

# Number that separates the synthetic series from other series of the same seed.
STREAM = 27
# Share of the synthetic series that are shorter than context and horizon, as many series of users are.
SHORTER = 0.5


@dataclass(frozen=True, eq=False)
class Moments:
    """R factors, in float64, of the inputs of one attention layer.

    RᵀR is the sum of the outer products of all rows, where a row is:
    queries: [1 x], with x the input of the query projection.
    inputs: [1 z], with z the input of the key and value projections.
    keys: z minus its mean over the keys of one softmax, since a softmax ignores that mean.
    head_outputs: [1 H], with H the input of the output projection, W_V Σ_j p_ij z_j + b_v of all heads
    concatenated.
    """

    queries: Float[np.ndarray, "width_and_one width_and_one"]
    inputs: Float[np.ndarray, "in_and_one in_and_one"]
    keys: Float[np.ndarray, "in_and_one in"]
    head_outputs: Float[np.ndarray, "n inner_and_one"]


def gather(model: Family, *parts: Tokens) -> dict[str, Moments]:
    """Return the moments of every attention layer, by layer name, over all windows without PADDING.

    The model runs on `model.batch` windows at a time, and memory holds four R factors per layer between
    batches.
    parts: groups of windows whose series may be forecast together, such as those of one data set. Keys are
    centred over one window. In group attention (Chronos-2) they are centred over all windows of a part at one
    token position. In our passes every series is a group by itself, and a softmax over its single key is
    constant, but the groups of a user may contain several series.
    A layer of a stack without tokens (VisionTS' decoder) gets the moments of `white` inputs.
    ModelError if a family does not describe its attention layers, or if there is no window. HealthError as in
    `hidden_states`.
    """
    layers = attention_layers(model)
    if not any(map(len, parts)):
        raise ModelError(f"{model.name}: got no calibration window; name a data set with longer series")
    active = [layer for layer in layers if layer.stack in model.stacks]
    streams = {layer.name: _Streams(layer, model.stacks[0]) for layer in active}
    points = {
        (layer.name, projection): layer.linear(projection)
        for layer in active
        for projection in streams[layer.name].points
    }
    for tokens in parts:
        for stream in streams.values():
            stream.begin()
        for start in range(0, len(tokens), model.batch):
            _pass(model, tokens.take(np.arange(start, min(start + model.batch, len(tokens)))), streams, points)
    return {
        layer.name: streams[layer.name].moments() if layer.name in streams else white(layer.read()) for layer in layers
    }


def attention_layers(model: Family) -> list[AttentionLayer]:
    """Return the attention layers of a model; ModelError if the family describes none."""
    if layers := list(model.attentions()):
        return layers
    raise ModelError(f"{model.name}: describes no attention layers, so none can be compressed; implement `attentions`")


def _pass(
    model: Family, tokens: Tokens, streams: Mapping[str, _Streams], points: Mapping[tuple[str, str], Any]
) -> None:
    """Run a batch and add the inputs of its projections to the streams."""
    valid = {stack: kinds != TokenKind.PADDING for stack, kinds in tokens.kinds.items()}

    def add(point: tuple[str, str], states: torch.Tensor) -> torch.Tensor:
        name, projection = point
        streams[name].add(projection, states.detach().float().cpu().numpy(), valid)
        return states.new_empty(0)

    with capture({}, points, add):
        for _ in model.hidden_states(tokens):
            pass


def white(layer: Projections) -> Moments:
    """Return the moments of inputs with mean 0 and covariance 1, each attended to alone.

    With them, all directions have the same weight.
    """
    inputs = np.eye(1 + layer.q.shape[2])
    group_size = len(layer.q) // len(layer.v)
    head_outputs = np.zeros((len(inputs), 1 + len(layer.q) * layer.v.shape[1]))
    head_outputs[0, 0] = 1
    head_outputs[1:, 1:] = np.repeat(layer.v, group_size, axis=0).reshape(-1, len(inputs) - 1).T
    if layer.v_bias is not None:
        head_outputs[0, 1:] = np.repeat(layer.v_bias, group_size, axis=0).reshape(-1)
    return Moments(inputs, inputs, inputs[:, 1:], head_outputs)


def align_mask(layer: AttentionLayer, shape: tuple[int, ...], valid: np.ndarray) -> np.ndarray:
    """Return the mask of rows that count, with windows and tokens swapped for group attention.

    HealthError if the mask does not fit `shape`, the windows and tokens of the inputs of a projection.
    """
    if layer.reorder_mask is not None:
        valid = layer.reorder_mask(valid, shape)
    elif layer.kind == "group":
        valid = valid.T
    if shape != valid.shape:
        raise HealthError(
            f"{layer.name}: got inputs of {shape} windows and tokens, expected {valid.shape}; the attention "
            "layer does not read the tokens that `tokenize` returns"
        )
    return valid


class _Streams:
    """R factors of one layer, updated batch by batch."""

    def __init__(self, layer: AttentionLayer, first_stack: str) -> None:
        self._layer = layer
        cross = layer.kind == "cross"
        # Whether keys and queries have different inputs.
        separate = cross or layer.reorder_mask is not None
        self.points = ("q", "k", "o") if separate else ("q", "o")
        self._stacks = dict.fromkeys(self.points, layer.stack) | ({"k": first_stack} if cross else {})
        self._of = {projection: TallQR(layer.linear(projection).weight.shape[1]) for projection in self.points}
        self._keys = TallQR(layer.linear("k").weight.shape[1])
        self._means: _Means | None = None

    def begin(self) -> None:
        """Start a new part."""
        self._means = _Means() if self._layer.kind == "group" else None

    def add(self, projection: str, states: np.ndarray, valid: dict[str, np.ndarray]) -> None:
        """Add the inputs [..., T, d] of a projection; valid: stack -> mask of tokens that count."""
        states = states.reshape(-1, *states.shape[-2:])
        mask = align_mask(self._layer, states.shape[:2], valid[self._stacks[projection]])
        self._of[projection].add(states[mask])
        if projection == self.points[-2]:
            self._keys.add(centre(states, mask)[mask])
            if self._means is not None:
                self._keys.add(self._means.correction_rows(states, mask))

    def moments(self) -> Moments:
        roots = {projection: factor.root() for projection, factor in self._of.items()}
        return Moments(roots["q"], roots[self.points[-2]], self._keys.root()[:, 1:], roots["o"])


class _Means:
    """Running means per token position, and corrections for the centring of each batch by itself."""

    def __init__(self) -> None:
        self._counts: np.ndarray | float = 0.0
        self._means: np.ndarray | float = 0.0

    def correction_rows(
        self, states: Float[np.ndarray, "token window width"], mask: Bool[np.ndarray, "token window"]
    ) -> Float[np.ndarray, "token width"]:
        """Return correction rows, one per token position, for a batch that was centred on its own mean.

        With these rows added, the second moments are about the mean of all rows so far. A row is sqrt(n m /
        (n + m)) times the difference between the mean of the batch's m rows and the mean of the n rows before
        (Chan, Golub and LeVeque 1983, eq. 2.1b). mask: rows that count.
        """
        counts = mask.sum(axis=1)[:, None].astype(np.float64)
        means = (states * mask[:, :, None]).sum(axis=1, dtype=np.float64) / np.maximum(counts, 1)
        total = np.maximum(self._counts + counts, 1)
        rows: np.ndarray = np.sqrt(self._counts * counts / total) * (means - self._means)
        self._means = self._means + (means - self._means) * counts / total
        self._counts = self._counts + counts
        return rows


def centre(
    states: Float[np.ndarray, "window token width"], mask: Bool[np.ndarray, "window token"]
) -> Float[np.ndarray, "window token width"]:
    """Return states minus the mean over the unmasked tokens of their window, in float64.

    mask: tokens that count. A window without any stays unchanged.
    """
    states = states.astype(np.float64)
    counts = np.maximum(mask.sum(axis=1), 1)[:, None, None]
    deviations: np.ndarray = states - (states * mask[:, :, None]).sum(axis=1, keepdims=True) / counts
    return deviations


def calibration_tokens(model: Family, tables: Mapping[str, pa.Table], options: Calibration) -> list[Tokens]:
    """Return the tokens of `equal_windows`, one item per data set."""
    model, _ = model.with_condition(options.context, 0)
    return [model.tokenize(windows) for windows in equal_windows(model, tables, options)]


def equal_windows(model: Family, tables: Mapping[str, pa.Table], options: Calibration) -> list[Windows]:
    """Return `calibration_windows` with the same number, and so the same weight, for every data set.

    The windows of a data set that has fewer than the others are repeated.
    """
    parts = calibration_windows(model, tables, options)
    count = max(map(len, parts))
    return [windows.take(np.resize(np.arange(len(windows)), count).tolist()) for windows in parts]


def calibration_windows(model: Family, tables: Mapping[str, pa.Table], options: Calibration) -> list[Windows]:
    """Return calibration windows, one item per data set that has any, outside the held-out share.

    Series are tried in a seeded random order, until the number of series that yield a window equals the
    number of windows. tables: series by data set.
    DataError, with the reasons why series were skipped, if no series yields a window.
    """
    _, steps = model.with_condition(options.context, 0)
    spread = partial(spread_windows, context=steps, horizon=options.horizon, min_context=MIN_CONTEXT)
    batches, skip_reasons = [], Counter[str]()
    for dataset in options.datasets:
        series = table_series(tables[dataset])
        usable: dict[int, Series] = {}
        for index in np.random.default_rng(options.seed).permutation(len(series)):
            values = series[index].values
            past = replace(series[index], values=values[: int(len(values) * (1 - options.held_out))])
            if skips := spread([past], count=1)[1]:
                skip_reasons.update(skip.reason for skip in skips)
                continue
            if np.nanmin(past.values) == np.nanmax(past.values):
                skip_reasons["constant"] += 1
                continue
            usable[index] = past
            if len(usable) == options.windows:
                break
        if usable:
            batches.append(spread([usable[index] for index in sorted(usable)], count=options.windows)[0])
    batches += [
        synthetic_windows(options.windows, steps, options.horizon, seed=(options.seed, number))
        for number in range(options.synthetic)
    ]
    if not batches:
        reasons = ", ".join(f"{reason} ({count} series)" for reason, count in skip_reasons.most_common())
        raise DataError(
            f"calibration: data sets {list(options.datasets)} give no window before the last {options.held_out:.0%} of "
            f"their series: {reasons or 'they contain no series'}; name other data, a shorter horizon or synthetic "
            "series"
        )
    return batches


def calibration_series(tables: Mapping[str, pa.Table], calibration: Calibration | None) -> list[str]:
    """Return the digests of all series of the data sets that calibrate, sorted; none without calibration."""
    names = calibration.datasets if calibration else ()
    return sorted(frozenset[str]().union(*(digests(table_series(tables[name])) for name in names)))


def synthetic_windows(count: int, context: int, horizon: int, *, seed: Sequence[int]) -> Windows:
    """Return the last windows of `count` random series of `draw_priors`; a share of SHORTER has shorter contexts.

    A few series are left out where too many steps are missing.
    """
    rng = np.random.default_rng([*seed, STREAM])
    values = draw_priors(rng, count, context + horizon)
    lengths = rng.integers(MIN_CONTEXT + horizon, context + horizon + 1, count)
    lengths[rng.random(count) >= SHORTER] = context + horizon
    rows = zip(values, lengths, strict=True)
    series = [Series("synthetic", f"synthetic-{n}", row[-length:]) for n, (row, length) in enumerate(rows)]
    return last_windows(series, context=context, horizon=horizon, min_context=MIN_CONTEXT)[0]

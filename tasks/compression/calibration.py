"""What a model's attention layers are given, as second moments, gathered in one pass over calibration windows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Bool, Float

from tasks.errors import HealthError, ModelError
from tasks.models.attention import AttentionLayer, Projections
from tasks.models.capture import capture
from tasks.models.types import TokenKind, Tokens
from tasks.ranks.tall import TallQR

if TYPE_CHECKING:
    import torch

    from tasks.models.base import Family


@dataclass(frozen=True, eq=False)
class Moments:
    """Of one attention layer, R factors in float64: RᵀR is the sum of a row's outer products over all rows.

    queries: of [1 x], x what is projected to queries. inputs: of [1 z], z what is projected to keys and values. keys:
    of z less its mean over the keys that are asked together, which a softmax does not see. attended: of [1 H], H what
    the output projection is given, W_V Σ_j p_ij z_j + b_v of all heads side by side.
    """

    queries: Float[np.ndarray, "width_and_one width_and_one"]
    inputs: Float[np.ndarray, "in_and_one in_and_one"]
    keys: Float[np.ndarray, "in_and_one in"]
    attended: Float[np.ndarray, "n inner_and_one"]


def gather(model: Family, *parts: Tokens) -> dict[str, Moments]:
    """Attention layer -> moments of its rows over all windows, `model.batch` windows at a time; PADDING counts nowhere.

    parts: windows of series that may be forecast together, such as those of a data set. Keys that are asked together
    are those of a window; in group attention (Chronos-2) those of a part at one place: in our passes every series is a
    group by itself, of whose one key a softmax sees nothing, but a user's groups are of several.

    Nothing is kept of a batch but four R factors a layer. A layer of a stack that no token reaches (VisionTS' decoder)
    has the moments of `white` inputs. Raises ModelError where a family does not say what its attention layers are or
    there is no window, HealthError as `hidden_states` does.
    """
    layers = list(model.attentions())
    if not layers:
        raise ModelError(f"{model.name}: says nothing of its attention layers, so that none can be compressed")
    if not any(map(len, parts)):
        raise ModelError(f"{model.name}: no calibration window; name a data set that gives some")
    reached = [layer for layer in layers if layer.stack in model.stacks]
    streams = {layer.name: _Streams(layer, model.stacks[0]) for layer in reached}
    points = {(layer.name, what): layer.linear(what) for layer in reached for what in streams[layer.name].points}
    for tokens in parts:
        for stream in streams.values():
            stream.begin()
        for start in range(0, len(tokens), model.batch):
            _pass(model, tokens.take(np.arange(start, min(start + model.batch, len(tokens)))), streams, points)
    return {
        layer.name: streams[layer.name].moments() if layer.name in streams else white(layer.read()) for layer in layers
    }


def _pass(
    model: Family, tokens: Tokens, streams: Mapping[str, _Streams], points: Mapping[tuple[str, str], Any]
) -> None:
    """Run a batch and add what its projections are given."""
    valid = {stack: kinds != TokenKind.PADDING for stack, kinds in tokens.kinds.items()}

    def add(point: tuple[str, str], states: torch.Tensor) -> torch.Tensor:
        name, what = point
        streams[name].add(what, states.detach().float().cpu().numpy(), valid)
        return states.new_empty(0)

    with capture({}, points, add):
        for _ in model.hidden_states(tokens):
            pass


def white(layer: Projections) -> Moments:
    """Moments of inputs of mean 0 and covariance 1, attended to one at a time: they weigh all directions alike."""
    inputs = np.eye(1 + layer.q.shape[2])
    shared = len(layer.q) // len(layer.v)
    attended = np.zeros((len(inputs), 1 + len(layer.q) * layer.v.shape[1]))
    attended[0, 0] = 1
    attended[1:, 1:] = np.repeat(layer.v, shared, axis=0).reshape(-1, len(inputs) - 1).T
    if layer.v_bias is not None:
        attended[0, 1:] = np.repeat(layer.v_bias, shared, axis=0).reshape(-1)
    return Moments(inputs, inputs, inputs[:, 1:], attended)


class _Streams:
    """The growing R factors of one layer."""

    def __init__(self, layer: AttentionLayer, first_stack: str) -> None:
        self._layer = layer
        cross = layer.kind == "cross"
        apart = cross or layer.laid_out is not None  # else keys are made of what queries are made of
        self.points = ("q", "k", "o") if apart else ("q", "o")
        self._stacks = dict.fromkeys(self.points, layer.stack) | ({"k": first_stack} if cross else {})
        self._of = {what: TallQR(layer.linear(what).weight.shape[1]) for what in self.points}
        self._keys = TallQR(layer.linear("k").weight.shape[1])
        self._together: _Means | None = None

    def begin(self) -> None:
        """What comes now is of another part."""
        self._together = _Means() if self._layer.kind == "group" else None

    def add(self, what: str, states: np.ndarray, valid: dict[str, np.ndarray]) -> None:
        """What the projection was given, [..., T, d]."""
        states = states.reshape(-1, *states.shape[-2:])
        kept = self._aligned(states.shape[:2], valid[self._stacks[what]])
        self._of[what].add(states[kept])
        if what == self.points[-2]:
            self._keys.add(centred(states, kept)[kept])
            if self._together is not None:
                self._keys.add(self._together.moved(states, kept))

    def moments(self) -> Moments:
        roots = {what: one.root() for what, one in self._of.items()}
        return Moments(roots["q"], roots[self.points[-2]], self._keys.root()[:, 1:], roots["o"])

    def _aligned(self, shape: tuple[int, ...], valid: np.ndarray) -> np.ndarray:
        """Which of the rows count; where a group's series attend to each other, windows and tokens change places."""
        if self._layer.laid_out is not None:
            valid = self._layer.laid_out(valid, shape)
        elif self._layer.kind == "group":
            valid = valid.T
        if shape != valid.shape:
            raise HealthError(
                f"{self._layer.name}: got {shape} windows and tokens, expected {valid.shape}; the model's attention "
                "is not over the tokens that it tells of"
            )
        return valid


class _Means:
    """Means, a place each, of rows that come in batches, and what centring each batch by itself leaves out."""

    def __init__(self) -> None:
        self._counts: np.ndarray | float = 0.0
        self._means: np.ndarray | float = 0.0

    def moved(
        self, states: Float[np.ndarray, "place window width"], kept: Bool[np.ndarray, "place window"]
    ) -> Float[np.ndarray, "place width"]:
        """Rows to add to those less their batch's mean, for the second moments about the mean of all so far.

        sqrt(n m / (n + m)) times the difference of the means of the n rows before and of the batch's m (Chan, Golub and
        LeVeque 1983, eq. 2.1b).
        """
        counts = kept.sum(axis=1)[:, None].astype(np.float64)
        means = (states * kept[:, :, None]).sum(axis=1, dtype=np.float64) / np.maximum(counts, 1)
        total = np.maximum(self._counts + counts, 1)
        apart: np.ndarray = np.sqrt(self._counts * counts / total) * (means - self._means)
        self._means = self._means + (means - self._means) * counts / total
        self._counts = self._counts + counts
        return apart


def centred(
    states: Float[np.ndarray, "window token width"], kept: Bool[np.ndarray, "window token"]
) -> Float[np.ndarray, "window token width"]:
    """Less the mean over the kept tokens of the window, in float64; a window without any stays."""
    states = states.astype(np.float64)
    counts = np.maximum(kept.sum(axis=1), 1)[:, None, None]
    less: np.ndarray = states - (states * kept[:, :, None]).sum(axis=1, keepdims=True) / counts
    return less

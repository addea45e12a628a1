"""What a model's attention layers are given, as second moments, gathered in one pass over calibration windows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

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
    of z less its mean over the keys of its window, which a softmax does not see. attended: of [1 H], H what the output
    projection is given, W_V Σ_j p_ij z_j + b_v of all heads side by side.
    """

    queries: Float[np.ndarray, "width_and_one width_and_one"]
    inputs: Float[np.ndarray, "in_and_one in_and_one"]
    keys: Float[np.ndarray, "in_and_one in"]
    attended: Float[np.ndarray, "n inner_and_one"]


def gather(model: Family, tokens: Tokens) -> dict[str, Moments]:
    """Attention layer -> moments of its rows over all windows, `model.batch` windows at a time; PADDING counts nowhere.

    Nothing is kept of a batch but four R factors a layer. A layer of a stack that no token reaches (VisionTS' decoder)
    has the moments of `white` inputs. Raises ModelError where a family does not say what its attention layers are or
    there is no window, HealthError as `hidden_states` does.
    """
    layers = list(model.attentions())
    if not layers:
        raise ModelError(f"{model.name}: says nothing of its attention layers, so that none can be compressed")
    if not len(tokens):
        raise ModelError(f"{model.name}: no calibration window; name a data set that gives some")
    reached = [layer for layer in layers if layer.stack in model.stacks]
    streams = {layer.name: _Streams(layer, model.stacks[0]) for layer in reached}
    points = {(layer.name, what): layer.linear(what) for layer in reached for what in streams[layer.name].points}
    for start in range(0, len(tokens), model.batch):
        part = tokens.take(np.arange(start, min(start + model.batch, len(tokens))))
        valid = {stack: kinds != TokenKind.PADDING for stack, kinds in part.kinds.items()}

        def add(point: tuple[str, str], states: torch.Tensor, valid: dict[str, np.ndarray] = valid) -> torch.Tensor:
            name, what = point
            streams[name].add(what, states.detach().float().cpu().numpy(), valid)
            return states.new_empty(0)

        with capture({}, points, add):
            for _ in model.hidden_states(part):
                pass
    return {
        layer.name: streams[layer.name].moments() if layer.name in streams else white(layer.read()) for layer in layers
    }


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

    def add(self, what: str, states: np.ndarray, valid: dict[str, np.ndarray]) -> None:
        """What the projection was given, [..., T, d]."""
        states = states.reshape(-1, *states.shape[-2:])
        kept = self._aligned(states.shape[:2], valid[self._stacks[what]])
        self._of[what].add(states[kept])
        if what == self.points[-2]:
            self._keys.add(centred(states, kept)[kept])

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


def centred(
    states: Float[np.ndarray, "window token width"], kept: Bool[np.ndarray, "window token"]
) -> Float[np.ndarray, "window token width"]:
    """Less the mean over the kept tokens of the window, in float64; a window without any stays."""
    states = states.astype(np.float64)
    counts = np.maximum(kept.sum(axis=1), 1)[:, None, None]
    less: np.ndarray = states - (states * kept[:, :, None]).sum(axis=1, keepdims=True) / counts
    return less

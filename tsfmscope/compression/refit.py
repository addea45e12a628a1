"""Least squares: the outputs of a truncated model's attention layers are fitted to those of its base."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float

from tsfmscope.compression.calibration import align_mask
from tsfmscope.models.common.capture import capture
from tsfmscope.models.common.layers import LowRank
from tsfmscope.models.types import TokenKind
from tsfmscope.ranks.tall import TallQR

if TYPE_CHECKING:
    from tsfmscope.models.base import Family
    from tsfmscope.models.common.attention import AttentionLayer
    from tsfmscope.models.types import Tokens

# Penalty on the change of a matrix, relative to the mean square of its inputs. Calibrated on 256 synthetic series,
# the WQL ratio of `chronos-bolt-350k` at a quarter is 1.063 with 0.1, 1.044 with 0.01, 1.036 with 0.001.
RIDGE = 0.01


def fit_outputs(base: Family, model: Family, parts: Sequence[Tokens], *, ridge: float = RIDGE) -> None:
    """Fit the output projection of every attention layer of a truncated model, in place.

    Equation: minimise Σ ‖y − (W + D) h‖² + λ ‖D‖² over D, where y is the output of the base's layer, h the input of
    the truncated model's output projection W for the same token, and λ = ridge times the mean of Σ h² over the
    entries of h. A bias is fitted too, without penalty. Of two thin factors only the second is fitted, so the
    number of parameters stays the same.
    Source: ridge regression; SVD-LLM (ICLR 2025) updates its factors by least squares in the same way. Deviation: all
    layers are fitted to one pass of the truncated model, so the inputs of later layers are those before the fit.
    Degenerate input: directions of h without data stay as they are. A layer of a stack without tokens is left out.

    base: the model before truncation. parts: calibration windows, as `calibration.gather` takes them.
    """
    fits = [
        _Fit(base_layer, layer)
        for base_layer, layer in zip(base.attentions(), model.attentions(), strict=True)
        if layer.stack in model.stacks
    ]
    for tokens in parts:
        for start in range(0, len(tokens), model.batch):
            batch = tokens.take(np.arange(start, min(start + model.batch, len(tokens))))
            targets = _inputs(base, {fit.name: (fit.base_layer, fit.base_layer.linear("o")) for fit in fits}, batch)
            inputs = _inputs(model, {fit.name: (fit.layer, fit.linear) for fit in fits}, batch)
            for fit in fits:
                fit.add(inputs[fit.name], targets[fit.name])
    for fit in fits:
        fit.apply(ridge)


class _Fit:
    """Least-squares problem of the output projection of one layer, gathered batch by batch."""

    def __init__(self, base_layer: AttentionLayer, layer: AttentionLayer) -> None:
        self.name, self.base_layer, self.layer = layer.name, base_layer, layer
        output = layer.linear("o")
        # Of two thin factors, the second gives the output.
        self.linear = output.wide if isinstance(output, LowRank) else output
        self._weight, self._bias = _arrays(self.linear)
        self._base_weight, self._base_bias = _arrays(base_layer.linear("o"))
        self._factor = TallQR(sum(self._weight.shape))

    def add(self, inputs: Float[np.ndarray, "row n"], base_inputs: Float[np.ndarray, "row m"]) -> None:
        """Add the inputs of both models' output projections for the same tokens."""
        residuals = base_inputs @ self._base_weight.T + self._base_bias - inputs @ self._weight.T - self._bias
        self._factor.add(np.concatenate([inputs, residuals], axis=1))

    def apply(self, ridge: float) -> None:
        """Change the weight, and the bias if there is one."""
        if not self._factor.rows:
            return
        # Columns of the R factor: the constant, the inputs, the residuals. Without a bias the constant is left out.
        n_free, n_inputs = int(self.linear.bias is not None), self._weight.shape[1]
        root = self._factor.root()
        change = solve_ridge(root[:, 1 - n_free : 1 + n_inputs], root[:, 1 + n_inputs :], ridge, n_free=n_free)
        with torch.no_grad():
            self.linear.weight.copy_(torch.from_numpy(self._weight + change[n_free:].T))
            if n_free:
                self.linear.bias.copy_(torch.from_numpy(self._bias + change[0]))


def solve_ridge(
    inputs: Float[np.ndarray, "row n"], targets: Float[np.ndarray, "row out"], ridge: float, *, n_free: int = 0
) -> Float[np.ndarray, "n out"]:
    """Return the D that minimises ‖targets − inputs D‖² + λ ‖D‖².

    λ is ridge times the mean over columns of ‖column of inputs‖².
    n_free: the number of first columns without a penalty, which do not count in λ. Inputs of zeros give zeros.
    """
    squares = np.square(inputs[:, n_free:]).sum()
    penalty = np.sqrt(ridge * squares / max(1, inputs.shape[1] - n_free)) * np.eye(inputs.shape[1])
    penalty[:n_free] = 0
    rows = np.concatenate([inputs, penalty])
    change: np.ndarray = np.linalg.lstsq(rows, np.pad(targets, ((0, len(penalty)), (0, 0))), rcond=None)[0]
    return change


def _inputs(
    model: Family, points: Mapping[str, tuple[AttentionLayer, Any]], tokens: Tokens
) -> dict[str, Float[np.ndarray, "row n"]]:
    """Return the inputs of a Linear of each layer in one pass, one row per token without PADDING."""
    valid = {stack: kinds != TokenKind.PADDING for stack, kinds in tokens.kinds.items()}
    rows: dict[str, list[np.ndarray]] = {name: [] for name in points}

    def add(name: str, states: torch.Tensor) -> torch.Tensor:
        layer, _ = points[name]
        values = states.detach().double().cpu().numpy()
        values = values.reshape(-1, *values.shape[-2:])
        rows[name].append(values[align_mask(layer, values.shape[:2], valid[layer.stack])])
        return states.new_empty(0)

    with capture({}, {name: linear for name, (_, linear) in points.items()}, add):
        for _ in model.hidden_states(tokens):
            pass
    return {name: np.concatenate(blocks) for name, blocks in rows.items()}


def _arrays(linear: Any) -> tuple[np.ndarray, Any]:
    """Return weight and bias in float64; a missing bias is 0."""
    weight, bias = linear.weight, linear.bias
    return weight.detach().double().cpu().numpy(), 0.0 if bias is None else bias.detach().double().cpu().numpy()

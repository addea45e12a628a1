"""MOMENT (Goswami et al. 2024) of CMU's Auton Lab: T5's encoder over patches, trained to reconstruct masked ones.

The encoder is transformers' T5Stack, as in the package momentfm. We wrote the rest: momentfm 0.1.4 pins versions of
numpy and transformers that exclude ours. Names, shapes and arithmetic are the package's, so its checkpoints load.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from jaxtyping import Bool, Float

from tsfmscope.models.common.attention import AttentionLayer
from tsfmscope.models.common.capture import Pass, Stack
from tsfmscope.models.moment import checkpoint
from tsfmscope.models.moment.windows import EPSILON, Cut, scale_and_cut
from tsfmscope.models.own_network import CheckpointModule, OwnNetwork
from tsfmscope.models.t5 import shared
from tsfmscope.models.types import TokenKind, Tokens, WeightMatrix
from tsfmscope.series.types import Windows

if TYPE_CHECKING:
    import torch

    from tsfmscope.models.moment.network import MomentNetwork

# Scaled targets of the loss are clipped to this: the scale of a constant context is 1e-5.
LARGEST_TARGET = 100.0


class Moment(OwnNetwork):
    """MOMENT models with the head of their pre-training, of one channel.

    Rows of the encoder: one per patch of the context and of the forecast. Context and forecast share a window of
    `seq_len` steps, so a longer forecast leaves a shorter context. Patches of the forecast are masked and of kind MASK.
    A context patch with a missing step is masked too, as in the paper, and of kind PADDING; tokens attend to it.
    Patches that contain padding, a context's first incomplete one among them, are PADDING and not attended to.

    Forecasts are `short_forecast` of the package: the reconstruction of masked patches at the window's end, by a
    network that was not fine-tuned for it. They are points: every quantile is the same number. Up to half a window is
    forecast in one forward pass; a longer horizon takes several passes, which append the forecast to the context. The
    package reads ever less context instead, and fails beyond a window. Its `short_forecast` has no argument for gaps
    that tokens attend to; they are masked as its `reconstruction` does.

    States are computed from values that were scaled in float64, in the package in float32. The package forecasts NaN
    for a series without a value; here its mean is 0 and its scale 1.
    """

    name: ClassVar[str] = checkpoint.NAME
    checkpoints: ClassVar[CheckpointModule] = checkpoint
    stacks: ClassVar[tuple[str, ...]] = checkpoint.STACKS
    direct_quantiles: ClassVar[bool] = True
    output_modules: ClassVar[tuple[str, ...]] = ("head",)
    # A bias by distance is added to the scores; it reads no state.
    plain_attention: ClassVar[bool] = True
    deviation_floor: ClassVar[float] = EPSILON
    config: dict[str, Any]
    network: MomentNetwork

    @property
    def layers(self) -> Mapping[str, int]:
        """Number of blocks of the encoder."""
        return {"encoder": len(self.network.encoder.block)}

    @property
    def width(self) -> int:
        """Width of the hidden states, d_model."""
        return int(self.config["d_model"])

    @property
    def max_context(self) -> int:
        """Number of context steps that are read: mean and scale read all, patches those before the forecast."""
        return int(self.config["seq_len"])

    @property
    def prediction_length(self) -> int:
        """Number of steps that one forward pass forecasts at most: half a window of patches, at least one patch."""
        size = int(self.config["patch_len"])
        return max(self.max_context // 2 // size, 1) * size

    def rows_per_window(self, context: int, horizon: int) -> Mapping[str, int]:
        """Return the number of whole patches of the context."""
        return {"encoder": int(self._cut(np.zeros((1, context)), self._ahead(horizon)).is_known.sum())}

    def weights(self) -> Iterator[WeightMatrix]:
        """Yield q, k, v, o (self), mlp_in, mlp_out, and mlp_gate of gated MLPs; `layer` counts blocks from 1."""
        return shared.stack_weights("encoder", self.network.encoder)

    def attentions(self) -> Iterator[AttentionLayer]:
        """Yield self-attention of every block; scores are unscaled q·k."""
        return shared.attentions(self.network, self.stacks)

    def loss(self, context: torch.Tensor, future: torch.Tensor) -> torch.Tensor:
        """Return the mean squared error of masked observed steps, in units of each window's context.

        Source: paper, section 3.2, and pretrain.py of the package's research code, which takes it in the units of
        standardised data and masks a share `mask_ratio` of all patches. Here the future is always masked, since
        that is what a forecast reconstructs, and of the context's whole patches a share `mask_ratio`, drawn with
        torch's generator. Targets are clipped to 100 scales of the context. ValueError where the future is longer than
        half a window.
        """
        import torch

        steps, device = future.shape[1], self.network.device
        if steps > self.prediction_length:
            raise ValueError(f"future: got {steps} steps, expected at most {self.prediction_length}, half of seq_len")
        ahead, size = self._ahead(steps), int(self.config["patch_len"])
        past = context.cpu().numpy().astype(np.float64)[:, -(self.max_context - ahead) :]
        hidden = self._draw_masks(self._cut(past, ahead).is_known[:, : -(ahead // size)])
        hidden = np.repeat(hidden, size, axis=1)[:, -past.shape[1] :]
        cut = self._cut(past, ahead, hidden)
        predicted = self.network(*self._on_device(*Cut.inputs(cut.arrays()))).flatten(1)  # [W, T * P]
        predicted = predicted[:, predicted.shape[1] - ahead - past.shape[1] :][:, : past.shape[1] + steps]
        masked = np.where(hidden, past, np.nan)
        target = np.concatenate((masked, future.cpu().numpy().astype(np.float64)), axis=1)
        target = np.clip((target - cut.loc[:, None]) / cut.scale[:, None], -LARGEST_TARGET, LARGEST_TARGET)
        is_counted = torch.from_numpy(~np.isnan(target)).to(device)
        aim = torch.from_numpy(np.nan_to_num(target).astype(np.float32)).to(device)
        loss: torch.Tensor = ((predicted - aim).square() * is_counted).sum() / is_counted.sum().clamp_min(1)
        return loss

    def _draw_masks(self, is_known: Bool[np.ndarray, "window token"]) -> Bool[np.ndarray, "window token"]:
        """Return which context patches are masked: of n known ones, the whole part of n times `mask_ratio`."""
        import torch

        noise = torch.rand(is_known.shape).numpy()
        order = np.where(is_known, noise, 2.0).argsort(axis=1).argsort(axis=1)
        count = np.floor(is_known.sum(axis=1, keepdims=True) * self.config["mask_ratio"])
        return np.asarray(order < count)

    def _tokenize(self, windows: Windows) -> Tokens:
        ahead = self._ahead(windows.horizon)
        cut = self._cut(windows.context, ahead)
        kinds = np.where(cut.is_known & cut.attended, TokenKind.OBSERVATION, TokenKind.PADDING)
        kinds[:, kinds.shape[1] - ahead // self.config["patch_len"] :] = TokenKind.MASK
        return Tokens(
            arrays=cut.arrays(),
            kinds={"encoder": kinds.astype(np.int8)},
            types={},
            series=windows.series,
            origin=windows.origin,
        )

    def _pass(self, tokens: Tokens) -> Pass:
        network = self.network.eval()

        def forward(part: slice) -> None:
            network(*self._on_device(*(array[part] for array in Cut.inputs(tokens.arrays))))

        encoder = network.encoder
        queries = {"encoder": [block.layer[0].SelfAttention.q for block in encoder.block]}
        return Pass({"encoder": Stack(encoder.block, encoder.final_layer_norm)}, forward, queries)

    def _forecast(self, windows: Windows, levels: tuple[float, ...], samples: int, seeds: list[int]) -> np.ndarray:
        history, left = windows.context.astype(np.float64), windows.horizon
        while left > 0:
            steps = min(left, self.prediction_length)
            history = np.concatenate((history, self._predict(history, steps)), axis=1)
            left -= steps
        return np.repeat(history[:, None, -windows.horizon :], len(levels), axis=1)

    def _predict(self, context: Float[np.ndarray, "window step"], steps: int) -> Float[np.ndarray, "window horizon"]:
        """Return the steps after a context by one forward pass, in the data's units."""
        import torch

        network, ahead, parts = self.network.eval(), self._ahead(steps), []
        cut = self._cut(context, ahead)
        with torch.inference_mode():
            for start in range(0, len(context), self.batch):
                inputs = (part[start : start + self.batch] for part in Cut.inputs(cut.arrays()))
                flat = network(*self._on_device(*inputs)).flatten(1)
                parts.append(flat[:, -ahead:][:, :steps].double().cpu().numpy())
        return np.asarray(np.concatenate(parts) * cut.scale[:, None] + cut.loc[:, None])

    def _ahead(self, horizon: int) -> int:
        """Return the number of masked steps after the context, whole patches."""
        size = int(self.config["patch_len"])
        return -(-min(horizon, self.prediction_length) // size) * size

    def _cut(self, context: np.ndarray, ahead: int, hidden: np.ndarray | None = None) -> Cut:
        return scale_and_cut(context, ahead, longest=self.max_context, size=self.config["patch_len"], hidden=hidden)

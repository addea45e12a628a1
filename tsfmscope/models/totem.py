"""TOTEM (Talukder et al. 2024): codes of a VQ-VAE, of four steps each, as tokens of a Transformer encoder.

No weights of the authors are public as far as we know (their code is, SaberaTalukder/TOTEM), so there is no
released folder to read. Only folders that `save` writes can be loaded.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from jaxtyping import Bool, Float

from tsfmscope.models.base import Forecaster, Pretrained
from tsfmscope.models.common import checkpoint_folder
from tsfmscope.models.common.attention import NAMES, AttentionLayer, layers_of_blocks
from tsfmscope.models.common.capture import Pass, Stack
from tsfmscope.models.common.scale import HUGE, clip_float32, mean_and_deviation
from tsfmscope.models.types import TokenKind, Tokens
from tsfmscope.series.types import Windows

if TYPE_CHECKING:
    import torch

REQUIRED = ("d_model", "ffn_dim", "num_hidden_layers", "num_attention_heads", "context_length", "prediction_length")
# Values of the paper and of the authors' forecasting scripts.
DEFAULTS = {
    "num_codes": 256, "code_width": 64, "conv_width": 128, "residual_layers": 2, "residual_width": 64,
    "commitment_cost": 0.25, "dropout": 0.0,
}  # fmt: skip
# Steps per code.
FACTOR = 4
# Beta of the smooth L1 loss of the forecast, in scaled units; the authors' default.
BETA = 0.1


class Totem(Pretrained, Forecaster):
    """TOTEM models: a VQ-VAE and a forecaster that reads its codes.

    Rows of the encoder: one row per code of four steps of a context of fixed length. A row's type is its
    code's id.

    A shorter context is padded on the left; of a longer one the last steps are read. A window is scaled by
    the mean and standard deviation of the observed steps (a constant one by its value), and a missing step is
    0, the mean. A code of four missing steps is PADDING. The encoder has no mask, as the authors' has none,
    so such codes are attended to. Norms come after the residual sums, so the last state is the last block's,
    normed there. There is no final norm.

    The forecast is one point, scaled back, and every quantile is that point. There are three deviations from
    the authors. The VQ-VAE and the forecaster are trained together, not one after the other (the forecaster
    changes no part of the VQ-VAE). Codes that training leaves unused are placed anew. The horizon's mean and
    standard deviation are the context's (scheme 2 of their code), not predicted (scheme 1).
    """

    name: ClassVar[str] = "totem"
    architectures: ClassVar[tuple[str, ...]] = ("TotemNetwork",)
    example: ClassVar[Mapping[str, Any]] = {
        "d_model": 16, "ffn_dim": 24, "num_attention_heads": 2, "num_hidden_layers": 3, "context_length": 48,
        "prediction_length": 12, "num_codes": 32, "code_width": 8, "conv_width": 8, "residual_width": 4,
    }  # fmt: skip
    stacks: ClassVar[tuple[str, ...]] = ("encoder",)
    mlp: ClassVar[Mapping[str, str]] = {"mlp_in": "mlp_in", "mlp_out": "mlp_out"}
    final_norm: ClassVar[bool] = False
    direct_quantiles: ClassVar[bool] = True
    output_modules: ClassVar[tuple[str, ...]] = ("head",)
    plain_attention: ClassVar[bool] = True
    # A code depends on steps on both sides, and a swap of steps may not change it.
    in_time_order: ClassVar[bool] = False
    no_ddp_reason: ClassVar[str] = "a step moves unused codes to tokens of its batch, in addition to their gradients"
    # TotemNetwork.
    network: Any

    @classmethod
    def new(cls, config: Mapping[str, Any], *, seed: int) -> Self:
        """Return a model with random weights.

        Keys of the config: all of REQUIRED, and those of DEFAULTS where they differ. ValueError for keys that
        are missing or unknown, and for a config that cannot be used.
        """
        from tsfmscope.models.totem_network import TotemConfig, TotemNetwork

        full = checkpoint_folder.filled_config(config, REQUIRED, DEFAULTS, cls.name, _find_problem)
        return cls(checkpoint_folder.build(lambda: TotemNetwork(TotemConfig(**full)), seed))

    @classmethod
    def load(cls, folder: Path, *, device: str = "cpu") -> Self:
        """Load a saved model, safetensors only; ModelError names the file that is wrong."""
        from tsfmscope.models.totem_network import TotemNetwork

        folder = Path(folder)
        config = checkpoint_folder.read_config(folder, cls.name)
        checkpoint_folder.check_model_type(config, folder, cls.name)
        known = {key: config.get(key, default) for key, default in (dict.fromkeys(REQUIRED) | DEFAULTS).items()}
        if wrong := _find_problem(known):
            raise checkpoint_folder.broken_checkpoint(f"{folder / 'config.json'}: {wrong}")
        return cls(cls.load_network(TotemNetwork, folder, device))

    def prepare_example(self) -> None:
        """Place the codes on vectors that the model's own convolutions compute from noise.

        Otherwise all steps have the same one of the small initial codes.
        """
        import torch

        vqvae = self.network.vqvae
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            torch.manual_seed(0)
            vqvae.restart_unused_codes(vqvae.quantise(torch.randn(8, self.max_context)).encoded.flatten(0, 1))

    @property
    def blocks(self) -> Mapping[str, Sequence[Any]]:
        """Blocks of the encoder."""
        return {"encoder": self.network.encoder}

    @classmethod
    def attention_layers(cls, network: Any) -> Iterator[AttentionLayer]:
        """Yield self-attention of every block; scores are q·k over the root of the original head's width."""
        return layers_of_blocks("encoder", network.encoder, "", {name: name for name in NAMES})

    @property
    def max_context(self) -> int:
        """Number of context steps that the model reads; shorter contexts are padded to it."""
        return int(self.network.config.context_length)

    @property
    def prediction_length(self) -> int:
        """Steps forecast at once; for longer horizons the point forecast is appended to the context."""
        return int(self.network.config.prediction_length)

    def rows_per_window(self, context: int, horizon: int) -> Mapping[str, int]:
        """Return the number of codes of the context's steps."""
        return {"encoder": -(-min(context, self.max_context) // FACTOR)}

    @property
    def loss_horizon(self) -> int:
        """Number of future steps that `loss` needs, those of the head's forecast."""
        return self.prediction_length

    def loss(self, context: torch.Tensor, future: torch.Tensor) -> torch.Tensor:
        """Return the smooth L1 loss of the scaled forecast plus the loss of the VQ-VAE.

        The loss of the VQ-VAE has three terms: the squared error of the decoded context, that of the codes
        towards the vectors that they stand for, and, times commitment_cost, that of these vectors towards the
        codes. Missing steps have no weight. In training mode, unused codes are placed anew. ValueError where
        the future is not as long as the head's forecast.
        """
        import torch
        from torch.nn.functional import smooth_l1_loss

        if future.shape[1] != self.prediction_length:
            raise ValueError(
                f"future: got {future.shape[1]} steps, expected prediction_length {self.prediction_length}"
            )
        network, device = self.network, self.network.device
        steps, observed, loc, scale = self._scale_context(context.cpu().numpy())
        scaled, is_observed = (torch.from_numpy(part).to(device) for part in (steps, observed))
        cells = is_observed.unflatten(1, (-1, FACTOR)).any(dim=-1)
        quantised = network.vqvae.quantise(scaled)
        if network.training and cells.any():
            network.vqvae.restart_unused_codes(quantised.encoded.detach()[cells])
        # The gradient passes the choice of a code.
        through = quantised.encoded + (quantised.codes - quantised.encoded).detach()
        decoded = network.vqvae.decode(through)
        towards = (quantised.codes - quantised.encoded.detach()).square()
        commitment = (quantised.codes.detach() - quantised.encoded).square() * network.config.commitment_cost
        vqvae = _mean((decoded - scaled).square(), is_observed) + _mean(towards + commitment, cells[..., None])
        scaled_future = (future.cpu().numpy().astype(np.float64) - loc[:, None]) / scale[:, None]
        scaled_future = np.clip(np.nan_to_num(scaled_future), -HUGE, HUGE).astype(np.float32)
        target = torch.from_numpy(scaled_future).to(device)
        errors = smooth_l1_loss(network(quantised.ids), target, beta=BETA, reduction="none")
        return vqvae + _mean(errors, ~torch.isnan(future.to(device)))

    def _tokenize(self, windows: Windows) -> Tokens:
        steps, observed, loc, scale = self._scale_context(windows.context)
        codes = self._codes(steps)
        is_observed = observed.reshape(len(observed), -1, FACTOR).any(axis=-1)
        kinds = np.where(is_observed, TokenKind.OBSERVATION, TokenKind.PADDING).astype(np.int8)
        arrays = {"codes": codes, "loc": clip_float32(loc), "scale": clip_float32(scale)}
        return Tokens(arrays, {"encoder": kinds}, {"encoder": codes}, windows.series, windows.origin)

    def _pass(self, tokens: Tokens) -> Pass:
        import torch

        network = self.network.eval()
        codes = tokens.arrays["codes"]

        def forward(part: slice) -> None:
            network.encode(torch.from_numpy(codes[part].astype(np.int64)).to(network.device))

        queries = {"encoder": [block.q for block in network.encoder]}
        return Pass({"encoder": Stack(network.encoder, None)}, forward, queries)

    def _forecast(self, windows: Windows, levels: tuple[float, ...], samples: int, seeds: list[int]) -> np.ndarray:
        def predict(history: np.ndarray, remaining: int) -> np.ndarray:
            steps, _, loc, scale = self._scale_context(history)
            point = self._run_in_batches(self.network, self._codes(steps).astype(np.int64))
            return np.asarray(point * scale[:, None] + loc[:, None])  # [W, P]

        point = self._forecast_in_parts(windows, predict)
        return np.repeat(point[:, None], len(levels), axis=1)

    def _codes(self, steps: Float[np.ndarray, "window step"]) -> np.ndarray:
        """Return ids [W, T] of the VQ-VAE's codes, int32."""
        if not len(steps):
            return np.empty((0, self.max_context // FACTOR), np.int32)
        return self._run_in_batches(lambda part: self.network.vqvae.quantise(part).ids, steps).astype(np.int32)

    def _scale_context(
        self, context: Float[np.ndarray, "window context"]
    ) -> tuple[Float[np.ndarray, "window step"], Bool[np.ndarray, "window step"], np.ndarray, np.ndarray]:
        """Return the scaled context, which of its steps are observed, and loc and scale [W].

        The context has the model's length, is float32, and is 0 where a step is missing.
        """
        values = context[:, -self.max_context :].astype(np.float64)
        values = np.pad(values, ((0, 0), (self.max_context - values.shape[1], 0)), constant_values=np.nan)
        loc, scale = mean_and_deviation(values)
        observed = ~np.isnan(values)
        scaled = np.where(observed, (values - loc[:, None]) / scale[:, None], 0.0)
        return scaled.astype(np.float32), observed, loc, scale


def _mean(errors: torch.Tensor, counted: torch.Tensor) -> torch.Tensor:
    """Return the mean of the errors that count, 0 where none does."""
    counted = counted.expand_as(errors)
    return (errors * counted).sum() / counted.sum().clamp_min(1)


def _find_problem(config: Mapping[str, Any]) -> str | None:
    """Return why a config cannot be used, or None."""
    length, width, heads = (config[key] for key in ("context_length", "d_model", "num_attention_heads"))
    if type(length) is not int or length < FACTOR or length % FACTOR:
        return f"got context_length {length!r}, expected a multiple of {FACTOR}, the steps of a code"
    if type(width) is not int or type(heads) is not int or heads < 1 or width % heads or width % 2:
        return f"got d_model {width!r} and num_attention_heads {heads!r}, expected an even width that the heads divide"
    return None

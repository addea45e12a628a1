"""TTM, TinyTimeMixer (Ekambaram et al. 2024) of IBM: MLPs mix patches and features; there is no attention.

We wrote the network: the package, granite-tsfm, bounds the versions of torch and transformers. Names, shapes and
arithmetic are the package's, so the releases R1 and R2 (ibm-granite/granite-timeseries-ttm-r1, -r2) load.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from jaxtyping import Bool, Float

from tsfmscope.models.common.capture import Pass, Stack
from tsfmscope.models.common.scale import HUGE, clip_float32
from tsfmscope.models.facts import APACHE, Package, Released
from tsfmscope.models.own_network import CheckpointModule, OwnNetwork
from tsfmscope.models.ttm import checkpoint
from tsfmscope.models.types import PackageForecast, TokenKind, Tokens
from tsfmscope.series.types import Windows

if TYPE_CHECKING:
    import torch

    from tsfmscope.models.ttm.network import TTMNetwork

# Added to the variance of a context, in the data's units: minimum_scale of the package's scaler.
VARIANCE = 1e-5
# Frequency -> its token (granite-tsfm, DEFAULT_FREQUENCY_MAPPING); UNKNOWN for all others.
FREQUENCIES = {
    **{"min": 1, "T": 1, "2min": 2, "2T": 2, "5min": 3, "5T": 3, "10min": 4, "10T": 4, "15min": 5, "15T": 5},
    **{"30min": 6, "30T": 6, "h": 7, "H": 7, "D": 8, "W": 9},
}
UNKNOWN = 0


class TTM(OwnNetwork):
    """TTM models of one channel.

    Rows of the encoder: one row per patch of a context of fixed length; before them a row of the sampling rate (kind
    REG) where the model has one (resolution_prefix_tuning; the frequency tuned releases). A shorter context is padded
    on the left; of a longer one the last steps are read. A missing step, also one before a shorter context, is 0 after
    scaling, which is the mean of the observed steps; granite-tsfm 0.3.11 puts 0 there before scaling, which is off by
    the level of the series, so its states and forecasts of short contexts and of contexts with gaps differ from these.
    A patch without an observed step is PADDING, but is mixed like the others.

    A layer is one mixer layer: patches are mixed, then features. Under adaptive patching, layers of finer levels cut
    every row into consecutive parts and work on these; a row of states is always the whole patch. The encoder has no
    final norm: the last state is that of the last layer, and there is no normed state.

    The decoder is narrower than the encoder in every release. It is not a stack here, since one dump has one width;
    its matrices are among the weights. The MLPs across features are mlp_in and mlp_out, [2 d / f, d / f] where a layer
    cuts rows into f parts. The MLPs across patches and the gates are not named: they mix other axes than states have.

    The family forecasts points: every quantile is the same number. For a horizon beyond prediction_length, the
    forecast is appended to the context, as the package's RecursivePredictor does.
    """

    name: ClassVar[str] = checkpoint.NAME
    released: ClassVar[Released] = Released(
        # The weights of ibm-research/ttm-research-r2 are for research only.
        ("ibm-granite/granite-timeseries-ttm-r1", "ibm-granite/granite-timeseries-ttm-r2"),
        APACHE,
        "arxiv.org/abs/2401.03955, abstract",
    )
    package: ClassVar[Package | None] = Package(
        "granite-tsfm",
        "tsfm_public.models.tinytimemixer:TinyTimeMixerForPrediction",
        has_our_network=False,
        network="tsfm_public.models.tinytimemixer:TinyTimeMixerForPrediction",
        wants_all_steps=True,
    )
    architectures: ClassVar[tuple[str, ...]] = ("TinyTimeMixerForPrediction",)
    example: ClassVar[Mapping[str, Any]] = {
        "context_length": 48, "prediction_length": 12, "patch_length": 8, "patch_stride": 8, "d_model": 16,
        "num_layers": 2, "adaptive_patching_levels": 2, "decoder_d_model": 12, "decoder_num_layers": 1,
        "dropout": 0.0, "head_dropout": 0.0,
    }  # fmt: skip
    checkpoints: ClassVar[CheckpointModule] = checkpoint
    stacks: ClassVar[tuple[str, ...]] = ("encoder",)
    # Across features.
    mlp: ClassVar[Mapping[str, str]] = {"feature_mixer.mlp.fc1": "mlp_in", "feature_mixer.mlp.fc2": "mlp_out"}
    final_norm: ClassVar[bool] = False
    direct_quantiles: ClassVar[bool] = True
    divides_rows: ClassVar[bool] = True
    deviation_floor: ClassVar[float] = math.sqrt(VARIANCE)
    output_modules: ClassVar[tuple[str, ...]] = ("head",)
    # The MLP across patches with its gate, and the gate of the MLP across features.
    unnamed: ClassVar[frozenset[str]] = frozenset({"patch_mixer", "feature_mixer.gating_block"})
    config: dict[str, Any]
    network: TTMNetwork

    @property
    def blocks(self) -> Mapping[str, Sequence[Any]]:
        """Mixer layers of the encoder, over all levels of adaptive patching, and of the decoder."""
        return {"encoder": self.network.blocks, "decoder": self.network.decoder_blocks}

    @property
    def max_context(self) -> int:
        """Number of context steps that the model reads; shorter contexts are padded to it."""
        return int(self.config["context_length"])

    @property
    def prediction_length(self) -> int:
        """Steps forecast at once; for longer horizons the forecast is appended to the context."""
        return int(self.network.horizon)

    def rows_per_window(self, context: int, horizon: int) -> Mapping[str, int]:
        """Return the number of patches that read a step of the context."""
        observed = np.ones((1, context))
        return {"encoder": int(self._patches(self._scale_context(observed)[1]).any(axis=-1).sum())}

    @property
    def loss_horizon(self) -> int:
        """Number of future steps that `loss` needs, those of the head's forecast."""
        return self.prediction_length

    def forecast_with_package(self, network: Any, windows: Windows, tokens: Tokens) -> PackageForecast:
        """Return the point of granite-tsfm's class."""
        import torch

        past, token = torch.from_numpy(windows.context)[:, :, None], None
        if network.config.resolution_prefix_tuning:
            token = torch.from_numpy(self._frequency_tokens(windows)).long()
        point = network(past, freq_token=token).prediction_outputs[:, : windows.horizon, 0].numpy()
        return PackageForecast(point[:, None], (0.5,))

    def loss(self, context: torch.Tensor, future: torch.Tensor) -> torch.Tensor:
        """Return the config's `loss` of the scaled forecast (mse, mae, huber or pinball), the mean over observed steps.

        The package takes it in the units of its data, which it has standardised before; here each window is in units
        of its own context. The frequency counts as unknown. ValueError where the future is not as long as the head's
        forecast.
        """
        import torch

        if future.shape[1] != self.prediction_length:
            raise ValueError(f"future: got {future.shape[1]} steps, expected the {self.prediction_length} of the head")
        network = self.network
        scaled, _, loc, scale = self._scale_context(context.cpu().numpy())
        target = (future.cpu().numpy().astype(np.float64) - loc[:, None]) / scale[:, None]
        known = torch.from_numpy(~np.isnan(target)).to(network.device)
        aim = torch.from_numpy(np.clip(np.nan_to_num(target), -HUGE, HUGE).astype(np.float32)).to(network.device)
        answer = network(*self._on_device(self._patches(scaled), np.full(len(scaled), UNKNOWN)))
        losses = _losses(answer, aim, self.config)
        loss: torch.Tensor = (losses * known).sum() / known.sum().clamp_min(1)
        return loss

    def _tokenize(self, windows: Windows) -> Tokens:
        scaled, observed, loc, scale = self._scale_context(windows.context)
        is_observed = self._patches(observed).any(axis=-1)
        kinds = np.where(is_observed, TokenKind.OBSERVATION, TokenKind.PADDING).astype(np.int8)
        if self.config["resolution_prefix_tuning"]:
            kinds = np.pad(kinds, ((0, 0), (1, 0)), constant_values=TokenKind.REG)
        return Tokens(
            arrays={
                "patches": self._patches(scaled),
                "frequency": self._frequency_tokens(windows),
                "loc": clip_float32(loc),
                "scale": clip_float32(scale),
            },
            kinds={"encoder": kinds},
            types={},
            series=windows.series,
            origin=windows.origin,
        )

    def _pass(self, tokens: Tokens) -> Pass:
        network = self.network.eval()
        patches, frequency = tokens.arrays["patches"], tokens.arrays["frequency"]

        def forward(part: slice) -> None:
            network.encode(*self._on_device(patches[part], frequency[part].astype(np.int64)))

        return Pass({"encoder": Stack(network.blocks, None)}, forward)

    def _forecast(self, windows: Windows, levels: tuple[float, ...], samples: int, seeds: list[int]) -> np.ndarray:
        tokens = self._frequency_tokens(windows).astype(np.int64)

        def predict(history: np.ndarray, remaining: int) -> np.ndarray:
            scaled, _, loc, scale = self._scale_context(history)
            point = self._run_in_batches(self.network, self._patches(scaled), tokens)
            return np.asarray(point * scale[:, None] + loc[:, None])  # [W, P]

        point = self._forecast_in_parts(windows, predict)
        return np.repeat(point[:, None], len(levels), axis=1)

    def _frequency_tokens(self, windows: Windows) -> np.ndarray:
        """Return the token of the data's frequency for every window, int32; UNKNOWN where the model has none for it."""
        token = FREQUENCIES.get(windows.freq.partition("-")[0], UNKNOWN)
        token = token if token < self.config["frequency_token_vocab_size"] else UNKNOWN
        return np.full(len(windows), token, np.int32)

    def _scale_context(
        self, context: Float[np.ndarray, "window context"]
    ) -> tuple[Float[np.ndarray, "window step"], Bool[np.ndarray, "window step"], np.ndarray, np.ndarray]:
        """Return the scaled context, which of its steps are observed, and loc and scale [W].

        The context has the model's length, is float32, and is 0 where a step is missing. It is scaled in float64.
        """
        steps = self.max_context
        values = context[:, -steps:].astype(np.float64)
        values = np.pad(values, ((0, 0), (steps - values.shape[1], 0)), constant_values=np.nan)
        observed = ~np.isnan(values)
        count = np.maximum(observed.sum(axis=1), 1)
        loc = np.where(observed, values, 0.0).sum(axis=1) / count
        centred = np.where(observed, values - loc[:, None], 0.0)
        scale = np.sqrt((centred**2).sum(axis=1) / count + VARIANCE)
        return (centred / scale[:, None]).astype(np.float32), observed, loc, scale

    def _patches(self, steps: np.ndarray) -> np.ndarray:
        """Return patches [W, T, patch] of a context [W, step]; without first steps that fill no patch."""
        size, stride = self.config["patch_length"], self.config["patch_stride"]
        read_steps = steps[:, (steps.shape[1] - size) % stride :]
        windows = np.lib.stride_tricks.sliding_window_view(read_steps, size, axis=1)
        return windows[:, ::stride].copy()


def _losses(answer: torch.Tensor, aim: torch.Tensor, config: Mapping[str, Any]) -> torch.Tensor:
    """Return the loss of every step [B, P], of the kind that the config names."""
    import torch
    from torch.nn import functional

    if config["loss"] == "mse":
        return (answer - aim).square()
    if config["loss"] == "mae":
        return (answer - aim).abs()
    if config["loss"] == "huber":
        return functional.huber_loss(answer, aim, reduction="none", delta=config["huber_delta"])
    errors, level = aim - answer, config["quantile"]
    return torch.maximum(level * errors, (level - 1) * errors)

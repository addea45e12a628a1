"""TTM, TinyTimeMixer (Ekambaram et al. 2024) of IBM: MLPs mix patches and features; there is no attention.

We wrote the network: the package, granite-tsfm, bounds the versions of torch and transformers. Names, shapes and
arithmetic are the package's, so the releases R1 and R2 (ibm-granite/granite-timeseries-ttm-r1, -r2) load.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from jaxtyping import Bool, Float

from tsfmscope.errors import ModelError
from tsfmscope.models.base import QUANTILES
from tsfmscope.models.common.capture import Pass, Stack
from tsfmscope.models.common.own_checkpoint import Count, Release, SavedConfig, Share, Switch
from tsfmscope.models.common.scale import HUGE, clip_float32
from tsfmscope.models.facts import APACHE, Package, Released
from tsfmscope.models.own_network import OwnNetwork
from tsfmscope.models.types import ForecastGraph, PackageForecast, TokenKind, Tokens
from tsfmscope.series.types import Windows

if TYPE_CHECKING:
    import torch

    from tsfmscope.models.ttm_network import TTMNetwork

# Added to the variance of a context, in the data's units: minimum_scale of the package's scaler.
VARIANCE = 1e-5
# Frequency -> its token (granite-tsfm, DEFAULT_FREQUENCY_MAPPING); UNKNOWN for all others.
FREQUENCIES = {
    **{"min": 1, "T": 1, "2min": 2, "2T": 2, "5min": 3, "5T": 3, "10min": 4, "10T": 4, "15min": 5, "15T": 5},
    **{"30min": 6, "30T": 6, "h": 7, "H": 7, "D": 8, "W": 9},
}
UNKNOWN = 0
# Settings of R1 and R2, for which the network here is written: channels that share all weights and are not mixed, no
# attention, none of the additions of R3. A config.json that lacks one has this value.
FIXED: dict[str, Any] = {
    "mode": "common_channel", "norm_mlp": "LayerNorm", "self_attn": False, "use_positional_encoding": False,
    "masked_context_length": None, "multi_scale": False, "register_tokens": 0, "fft_length": 0, "decompose": False,
    "light_mode": False, "enable_base_norm_always": False,
}  # fmt: skip
# Such settings that the encoder does not read (granite-tsfm 0.3.11, TinyTimeMixerModel).
HEAD: dict[str, Any] = {
    "decoder_mode": "common_channel", "enable_forecast_channel_mixing": False, "prediction_channel_indices": None,
    "exogenous_channel_indices": None, "categorical_vocab_size_list": None, "multi_quantile_head": False,
}  # fmt: skip
# Values of `scaling` that mean mean and standard deviation in the package.
SCALING = ("std", True)
LOSSES = ("mse", "mae", "huber", "pinball")
LEVELS = {"adaptive_patching_levels": "d_model", "decoder_adaptive_patching_levels": "decoder_d_model"}
MOST_LEVELS = 16


class Config(SavedConfig):
    """Keys of granite-tsfm's TinyTimeMixerConfig with its defaults."""

    context_length: Count
    prediction_length: Count
    patch_length: Count
    d_model: Count
    num_layers: Count
    patch_stride: Count = 8
    expansion_factor: Count = 2
    adaptive_patching_levels: Any = 0
    gated_attn: Switch = True
    dropout: Share = 0.2
    norm_eps: Any = 1e-5
    use_decoder: Switch = True
    decoder_d_model: Count = 8
    decoder_num_layers: Count = 8
    decoder_adaptive_patching_levels: Any = 0
    decoder_raw_residual: Switch = False
    head_dropout: Share = 0.2
    resolution_prefix_tuning: Switch = False
    frequency_token_vocab_size: Count = 5
    prediction_filter_length: Any = None
    loss: Any = "mse"
    quantile: Any = 0.5
    huber_delta: Any = 1

    def find_problem(self) -> str | None:
        """Return why a config cannot be used, or None."""
        from tsfmscope.models.ttm_network import level_factor

        for name, key in LEVELS.items():
            value, width = getattr(self, name), getattr(self, key)
            if type(value) is not int or not 0 <= value <= MOST_LEVELS:
                return f"got {name} {value!r}, expected a whole number from 0 to {MOST_LEVELS}"
            if wrong := [level for level in range(value) if width % level_factor(width, level)]:
                return f"got {name} {value} and {key} {width}, expected a multiple of {2 ** wrong[0]}"
        if self.patch_stride != self.patch_length:
            return (
                f"got patch_stride {self.patch_stride}, expected patch_length {self.patch_length}: "
                "patches do not overlap"
            )
        if self.context_length <= self.patch_length:
            return (
                f"got context_length {self.context_length} and patch_length {self.patch_length}, "
                "expected a context longer than a patch"
            )
        kept = self.prediction_filter_length
        if kept is not None and (type(kept) is not int or not 1 <= kept <= self.prediction_length):
            return f"got prediction_filter_length {kept!r}, expected null or 1 to prediction_length"
        if self.loss not in LOSSES:
            return f"got loss {self.loss!r}, expected one of {list(LOSSES)}"
        return None


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

    The decoder is narrower than the encoder in every release. It is not a stack here, since an activation file has
    one width; its matrices are among the weights. The MLPs across features are mlp_in and mlp_out, [2 d / f, d / f]
    where a layer cuts rows into f parts. The MLPs across patches and the gates are not named: they mix other axes than
    states have.

    The family forecasts points: every quantile is the same number. For a horizon beyond prediction_length, the
    forecast is appended to the context, as the package's RecursivePredictor does.

    A checkpoint whose decoder or head mixes channels or reads exogenous series is read as its encoder.
    """

    name: ClassVar[str] = "ttm"
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
    stacks: ClassVar[tuple[str, ...]] = ("encoder",)
    # Across features.
    mlp: ClassVar[Mapping[str, str]] = {"feature_mixer.mlp.fc1": "mlp_in", "feature_mixer.mlp.fc2": "mlp_out"}
    branches: ClassVar[Mapping[str, tuple[str, str]]] = {"patch_mixer.mlp.fc2": ("attention", "patch mixer")}
    final_norm: ClassVar[bool] = False
    direct_quantiles: ClassVar[bool] = True
    divides_rows: ClassVar[bool] = True
    deviation_floor: ClassVar[float] = math.sqrt(VARIANCE)
    output_modules: ClassVar[tuple[str, ...]] = ("head",)
    # The MLP across patches with its gate, and the gate of the MLP across features.
    unnamed: ClassVar[frozenset[str]] = frozenset({"patch_mixer", "feature_mixer.gating_block"})
    release: ClassVar[Release] = Release(
        Config, FIXED, "TTM R1 and R2", model_type="tinytimemixer", head=HEAD, encoder="backbone"
    )
    network: TTMNetwork

    @classmethod
    def make_network(cls, config: Mapping[str, Any]) -> TTMNetwork:
        """Return a network with weights drawn as torch draws those of a Linear, from its generator."""
        from tsfmscope.models.ttm_network import TTMNetwork

        return TTMNetwork(config)

    @classmethod
    def read_saved_config(cls, folder: Path) -> tuple[dict[str, Any], Release]:
        """Return config.json and the release; ModelError for another class or scaler.

        A checkpoint of several channels that share all weights is read as the model of one channel that it is.
        """
        saved, release = super().read_saved_config(folder)
        path, expected = folder / "config.json", list(cls.architectures)
        if (named := saved.get("architectures", expected)) != expected:
            raise ModelError(f"{path}: got architectures {named}, expected {expected}; only forecasters are read")
        if (scaling := saved.get("scaling", SCALING[0])) not in SCALING:
            raise ModelError(f"{path}: got scaling {scaling!r}, expected 'std'; other scalers are not supported")
        return saved, release

    def saved_config(self) -> dict[str, Any]:
        """Return config.json of one channel, without the values that every release has."""
        saved = {"num_input_channels": 1, "scaling": SCALING[0], **super().saved_config()}
        return {key: value for key, value in saved.items() if key not in FIXED}

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

    def forecast_graph(self) -> ForecastGraph:
        """Return the forecast of at most `prediction_length` steps; a shorter context is padded.

        A model that reads the sampling rate (resolution_prefix_tuning) has no graph: `make` raises ModelError.
        """
        from tsfmscope.models.graphs import TTMGraph

        self.check_complete()
        make = partial(TTMGraph, self.network.eval(), self.config, VARIANCE, len(QUANTILES))
        return ForecastGraph(make, self.max_context, self.prediction_length, QUANTILES)

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

        self.check_complete()
        if future.shape[1] != self.prediction_length:
            raise ValueError(f"future: got {future.shape[1]} steps, expected the {self.prediction_length} of the head")
        network = self.network
        scaled, _, loc, scale = self._scale_context(context.cpu().numpy())
        target = (future.cpu().numpy().astype(np.float64) - loc[:, None]) / scale[:, None]
        known = torch.from_numpy(~np.isnan(target)).to(network.device)
        aim = torch.from_numpy(np.clip(np.nan_to_num(target), -HUGE, HUGE).astype(np.float32)).to(network.device)
        answer = network(*self._on_device(self._patches(scaled), np.full(len(scaled), UNKNOWN)))
        losses = _losses(answer, aim, self.config)
        return (losses * known).sum() / known.sum().clamp_min(1)

    def _tokenize(self, windows: Windows) -> Tokens:
        scaled, observed, loc, scale = self._scale_context(windows.context)
        is_observed = self._patches(observed).any(axis=-1)
        kinds = np.where(is_observed, TokenKind.OBSERVATION, TokenKind.PADDING).astype(np.int8)
        if self.config["resolution_prefix_tuning"]:
            kinds = np.pad(kinds, ((0, 0), (1, 0)), constant_values=TokenKind.REG)
        arrays = {"patches": self._patches(scaled), "frequency": self._frequency_tokens(windows)}
        arrays |= {"loc": clip_float32(loc), "scale": clip_float32(scale)}
        return Tokens(arrays, {"encoder": kinds}, {}, windows.series, windows.origin)

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

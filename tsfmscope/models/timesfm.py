"""TimesFM 2.0 and 2.5 (Das et al. 2024) of transformers: patches of one series in a causal decoder."""

from __future__ import annotations

import dataclasses
import math
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from jaxtyping import Float32

from tsfmscope.errors import ModelError
from tsfmscope.models import timesfm_patches
from tsfmscope.models.base import QUANTILES, Forecaster, Pretrained
from tsfmscope.models.common import checkpoint_folder
from tsfmscope.models.common.attention import PARTS, AttentionLayer, Widths, resizer
from tsfmscope.models.common.capture import Pass, Stack
from tsfmscope.models.common.scale import clip_float32, level_weights
from tsfmscope.models.facts import APACHE, TOLLAMA, Package, Released, page
from tsfmscope.models.timesfm_patches import Patched, Steps
from tsfmscope.models.types import ForecastGraph, PackageForecast, TokenKind, Tokens, WeightMatrix
from tsfmscope.series.types import Windows

if TYPE_CHECKING:
    import torch

    from tsfmscope.models.graphs import Scale

REQUIRED = (
    *("hidden_size", "intermediate_size", "head_dim", "num_attention_heads", "num_hidden_layers"),
    *("context_length", "horizon_length"),
)
SHARED = {"patch_length": 32, "quantiles": QUANTILES, "initializer_range": 0.02, "rms_norm_eps": 1e-6}

# The package's factor on softplus(scaling) / sqrt(head_dim).
QUERY_FACTOR = 1.442695041
resize_heads = resizer(PARTS, "head_dim")


class TimesFMFamily(Pretrained, Forecaster):
    """TimesFM models of either version.

    Rows of the decoder: one row per patch of the context, which is padded on the left to whole patches.

    Gaps are filled as in Google's package (transformers' accepts none): leading ones are masked, others are
    interpolated. A patch without an observed step is PADDING, and it is attended to unless it is a leading
    one. The package pads every context to its longest. Masked patches change no other row, so that padding is
    left out here. Scaling is done in float64. Layer 0 is the input of the first block. No norm ends the
    stack.
    """

    stacks = ("decoder",)
    width_key = "hidden_size"
    final_norm = False
    direct_quantiles = True
    deviation_floor = timesfm_patches.TOLERANCE
    # model_type of config.json.
    model_type: ClassVar[str]
    # The network reads the frequency id.
    reads_frequency: ClassVar[bool]
    defaults: ClassVar[Mapping[str, Any]]

    @classmethod
    def new(cls, config: Mapping[str, Any], *, seed: int) -> Self:
        """Return a model with random weights.

        Keys of the config are named as in the package: all of REQUIRED, and those of `defaults` where they
        differ. ValueError for keys that are missing or unknown, and for a config that cannot be used.
        """
        full = checkpoint_folder.filled_config(config, REQUIRED, cls.defaults, cls.name, cls._find_problem)
        config_class, network_class = cls._classes()
        return cls(checkpoint_folder.build(lambda: network_class(config_class(**full)), seed))

    @classmethod
    def load(cls, folder: Path, *, device: str = "cpu") -> Self:
        """Load a released or saved checkpoint, safetensors only; ModelError names the file that is wrong."""
        folder = Path(folder)
        config = checkpoint_folder.read_config(folder, cls.name)
        checkpoint_folder.check_model_type(config, folder, cls.name, cls.model_type)
        with checkpoint_folder.limit_parameters(folder):
            if wrong := cls._find_problem(config):
                raise ModelError(f"{folder / 'config.json'}: {wrong}")
        return cls(cls.load_network(cls._classes()[1], folder, device))

    @property
    def blocks(self) -> Mapping[str, Sequence[Any]]:
        """Blocks of the decoder."""
        return {"decoder": self._decoder().layers}

    @property
    def max_context(self) -> int:
        """Number of steps that the model reads: the last ones of a longer context, as in the package."""
        return int(self.network.config.context_length)

    @property
    def prediction_length(self) -> int:
        """Steps forecast at once; for longer horizons the point forecast is appended to the context."""
        return int(self.network.config.horizon_length)

    def rows_per_window(self, context: int, horizon: int) -> Mapping[str, int]:
        """Return the number of patches that the context fills; the first may be filled in part."""
        return {"decoder": -(-min(context, self.max_context) // self._size)}

    def stock_model(self) -> Any:
        """Return the transformers network."""
        return self.network

    def forecast_graph(self) -> ForecastGraph:
        """Return the forecast of at most `prediction_length` steps, which is one forward pass."""
        from tsfmscope.models.graphs import TimesFMGraph

        levels, context, horizon = tuple(self.network.eval().config.quantiles), self.max_context, self.prediction_length
        return ForecastGraph(lambda _, steps: TimesFMGraph(self, steps), context, horizon, levels, self.reads_frequency)

    def forecast_with_package(self, network: Any, windows: Windows, tokens: Tokens) -> PackageForecast:
        """Return the quantiles of transformers' class."""
        import torch

        options = {"freq": tokens.arrays["freq"].tolist()} if self.reads_frequency else {}
        predictions = network(past_values=list(torch.from_numpy(windows.context)), **options).full_predictions.numpy()
        values = predictions[:, : windows.horizon, 1:].transpose(0, 2, 1)
        return PackageForecast(values, tuple(network.config.quantiles))

    def loss(self, context: torch.Tensor, future: torch.Tensor) -> torch.Tensor:
        """Return squared error of the mean plus quantile loss, averaged over all patches.

        Every patch has its next `prediction_length` observed steps as target. Errors are in units of the
        standard deviation of the window's observed steps, or in the data's units where that is TOLERANCE or
        less. The package's loss is that of the last patch alone, in the data's units, where a window's weight
        depends on its scale. The model was pretrained on every patch (Das et al. 2024). The frequency id is
        0.
        """
        import torch

        steps = timesfm_patches.pad_to_patches(context.cpu().numpy(), self._size, self.max_context)
        ready, device = self._make_patches(steps), self.network.device
        answers = self._outputs(self._decode(*self._tensors(ready.patches, ready.masks)))  # [B, T, H, 1 + Q]
        past = np.where(steps.missing, np.nan, steps.values)
        known = np.concatenate((past, future.cpu().numpy().astype(np.float64)), axis=1)
        spread = np.array([np.nanstd(row) if np.isfinite(row).any() else 0.0 for row in known])
        unit = np.where(spread > timesfm_patches.TOLERANCE, spread, 1.0)[:, None]
        scaled = (self._targets(known, past.shape[1]) - ready.loc[:, :, None]) / unit[:, :, None]
        target = torch.from_numpy(clip_float32(scaled)).to(device)  # [B, T, H]
        ratio = torch.from_numpy((ready.scale / unit).astype(np.float32)).to(device)
        is_observed = ~torch.isnan(target) & torch.from_numpy(~ready.masks.all(axis=2)).to(device)[:, :, None]
        errors = torch.where(is_observed, target, 0.0)[..., None] - answers * ratio[:, :, None, None]
        levels = torch.tensor(self.network.config.quantiles, device=device)
        pinball = torch.maximum(levels * errors[..., 1:], (levels - 1) * errors[..., 1:]).mean(dim=-1)
        losses = (errors[..., 0] ** 2 + pinball) * is_observed
        loss: torch.Tensor = losses.sum() / is_observed.sum().clamp(min=1)
        return loss

    @classmethod
    @abstractmethod
    def _classes(cls) -> tuple[Any, Any]:
        """Return the package's classes of config and network."""

    @classmethod
    @abstractmethod
    def _find_problem(cls, config: Mapping[str, Any]) -> str | None:
        """Return why a config cannot be used, or None."""

    # TimesFM 2.0 has none of the three settings.
    @property
    def _averages_mirror_image(self) -> bool:
        """Whether a forecast is the mean of the window's own and the negative of its mirror image's."""
        return bool(getattr(self.network.config, "force_flip_invariance", False))

    @property
    def keeps_sign(self) -> bool:
        """Whether a window without a negative step is forecast without one."""
        return bool(getattr(self.network.config, "infer_is_positive", False))

    @property
    def _appended_output(self) -> int:
        """Index of the output that longer horizons append to the context; 0 is the mean, the quantiles follow."""
        return int(getattr(self.network.config, "decode_index", 0))

    @abstractmethod
    def _decoder(self) -> Any:
        """Return the network without its head."""

    @abstractmethod
    def _make_patches(self, steps: Steps) -> Patched: ...

    @abstractmethod
    def traced_scale(self) -> Scale:
        """Return the scaling of `_make_patches` as a function of tensors."""

    @abstractmethod
    def _decode(self, patches: torch.Tensor, masks: torch.Tensor, freq: torch.Tensor) -> torch.Tensor:
        """Return the last block's state [B, T, d] of patches and masks [B, T, patch], frequency ids [B]."""

    @abstractmethod
    def _outputs(self, states: torch.Tensor) -> torch.Tensor:
        """Return the head's outputs [..., H, 1 + Q] of states [..., d], in their patch's loc and scale."""

    @property
    def _size(self) -> int:
        return int(self.network.config.patch_length)

    def _tokenize(self, windows: Windows) -> Tokens:
        ready = self._make_patches(timesfm_patches.pad_to_patches(windows.context, self._size, self.max_context))
        kinds = np.where(ready.observed, TokenKind.OBSERVATION, TokenKind.PADDING).astype(np.int8)
        arrays = {
            "patches": ready.patches,
            "masks": ready.masks,
            "freq": np.full(len(windows), timesfm_patches.frequency(windows.freq), dtype=np.int64),
            "loc": clip_float32(ready.loc),
            "scale": clip_float32(ready.scale),
        }
        return Tokens(arrays, {"decoder": kinds}, {}, windows.series, windows.origin)

    def _pass(self, tokens: Tokens) -> Pass:
        self.network.eval()
        arrays = [tokens.arrays[name] for name in ("patches", "masks", "freq")]

        def forward(part: slice) -> None:
            self._decode(*self._tensors(*(array[part] for array in arrays)))

        blocks = self._decoder().layers
        queries = {"decoder": [block.self_attn.q_proj for block in blocks]} if self.plain_attention else {}
        return Pass({"decoder": Stack(blocks, None)}, forward, queries)

    def _forecast(self, windows: Windows, levels: tuple[float, ...], samples: int, seeds: list[int]) -> np.ndarray:
        freq = np.full(len(windows), timesfm_patches.frequency(windows.freq), dtype=np.int64)

        def predict(history: np.ndarray, remaining: int) -> np.ndarray:
            ready = self._make_patches(timesfm_patches.pad_to_patches(history, self._size, self.max_context))
            scaled = self._run_in_batches(self.run_network, ready.patches, ready.masks, freq)
            return np.swapaxes(scaled * ready.scale[:, -1, None, None] + ready.loc[:, -1, None, None], 1, 2)

        values = self._forecast_in_parts(windows, predict, lambda part: part[:, self._appended_output])
        values = np.swapaxes(values, 1, 2)[:, :, 1:]  # [W, H, Q]
        known = self.network.config.quantiles
        by_level: np.ndarray = np.moveaxis(values @ level_weights(known, levels), 2, 1)
        if self.keeps_sign:
            negative = (windows.context[:, -self.max_context :] < 0).any(axis=1, keepdims=True)
            by_level = np.where(np.expand_dims(negative, 2), by_level, np.maximum(by_level, 0.0))
        return by_level

    def run_network(self, patches: torch.Tensor, masks: torch.Tensor, freq: torch.Tensor) -> torch.Tensor:
        """Return mean and quantiles after the last patch, in its loc and scale: [B, H, 1 + Q]."""
        import torch

        output = self._outputs(self._decode(patches, masks, freq)[:, -1])
        if self._averages_mirror_image:
            other = self._outputs(self._decode(-patches, masks, freq)[:, -1])
            output = (output - torch.cat((other[..., :1], other[..., 1:].flip(-1)), dim=-1)) / 2
        return output

    def _tensors(self, patches: np.ndarray, masks: np.ndarray, freq: np.ndarray | None = None) -> list[torch.Tensor]:
        """Return the arguments of `_decode` on the network's device; frequency 0 where none is given."""
        import torch

        freq = np.zeros(len(patches), dtype=np.int64) if freq is None else freq
        return [torch.from_numpy(np.array(part)).to(self.network.device) for part in (patches, masks, freq)]

    def _targets(self, steps: np.ndarray, context: int) -> np.ndarray:
        """Return the `prediction_length` steps after every patch of the context, [W, T, H].

        They are NaN where there are none.
        """
        horizon = self.prediction_length
        padded = np.pad(steps[:, : context + horizon], ((0, 0), (0, horizon)), constant_values=np.nan)
        ahead = np.lib.stride_tricks.sliding_window_view(padded, horizon, axis=1)
        return ahead[:, self._size : context + 1 : self._size]


class TimesFM(TimesFMFamily):
    """TimesFM 2.0 models (google/timesfm-2.0-500m-pytorch; 1.0 with position embeddings).

    Each dimension of a query has a scale, one diagonal for all heads. It is folded into the W_Q that
    `weights` returns, so scores are plain q·k. The embedding of the frequency is added to every patch. A
    frequency id beyond the model's embeddings takes the last one.
    """

    name = "timesfm"
    released = Released(("google/timesfm-2.0-500m-pytorch",), APACHE, page("google/timesfm-2.0-500m-pytorch"))
    package = Package("transformers", "transformers", network="transformers:TimesFmModelForPrediction")
    architectures = ("TimesFmModelForPrediction",)
    example: ClassVar[Mapping[str, Any]] = {
        "hidden_size": 16, "intermediate_size": 24, "initializer_range": 0.2, "num_attention_heads": 2,
        "num_hidden_layers": 3, "head_dim": 6, "patch_length": 8, "context_length": 48, "horizon_length": 12,
    }  # fmt: skip
    # Only its name is that of a gate.
    mlp: ClassVar[Mapping[str, str]] = {"mlp.gate_proj": "mlp_in", "mlp.down_proj": "mlp_out"}
    plain_attention = True
    output_modules = ("horizon_ff_layer",)
    model_type = "timesfm"
    reads_frequency = True
    defaults: ClassVar[Mapping[str, Any]] = {
        **SHARED, "freq_size": 3, "tolerance": 1e-6, "attention_dropout": 0.0, "use_positional_embedding": False,
        "min_timescale": 1, "max_timescale": 10_000,
    }  # fmt: skip

    def weights(self) -> Iterator[WeightMatrix]:
        """Yield the matrices of every block, with the scale of queries folded into q."""
        for weights in super().weights():
            if weights.name == "q":
                attention, heads = self.blocks["decoder"][weights.layer - 1].self_attn, int(weights.heads or 1)
                # Less than head_dim where values are wider than keys.
                scale = np.tile(query_scale(attention)[: len(weights.matrix) // heads], heads)
                weights = dataclasses.replace(weights, matrix=weights.matrix * scale[:, None])
            yield weights

    @classmethod
    def attention_layers(cls, network: Any) -> Iterator[AttentionLayer]:
        """Yield self-attention of every block; scores are q·k, with the query's scale folded into W_Q."""
        for layer, block in enumerate(network.decoder.layers, start=1):
            of = block.self_attn
            yield AttentionLayer(
                "decoder", layer, "self", of, of.num_heads, of.num_heads, 1.0, True, resize_scaled, PARTS, query_scale
            )

    @classmethod
    def _classes(cls) -> tuple[Any, Any]:
        from transformers import TimesFmConfig, TimesFmModelForPrediction

        return TimesFmConfig, TimesFmModelForPrediction

    @classmethod
    def _find_problem(cls, config: Mapping[str, Any]) -> str | None:
        return odd_context(config, 512)

    def _decoder(self) -> Any:
        return self.network.decoder

    def _make_patches(self, steps: Steps) -> Patched:
        return timesfm_patches.scale_by_first_patch(steps, self._size, self.network.config.tolerance)

    def traced_scale(self) -> Scale:
        from tsfmscope.models.graphs import scale_by_first_patch

        return partial(scale_by_first_patch, self.network.config.tolerance)

    def _decode(self, patches: torch.Tensor, masks: torch.Tensor, freq: torch.Tensor) -> torch.Tensor:
        import torch

        decoder, config = self._decoder(), self.network.config
        masked = masks.to(patches.dtype)
        # 1 where all steps of a patch are masked.
        padded = masked.amin(dim=-1)
        states: torch.Tensor = decoder.input_ff_layer(torch.cat((patches, masked), dim=-1))
        if config.use_positional_embedding:
            positions = decoder.position_emb(states.shape[1]).expand(states.shape[0], -1, -1)
            states = states + decoder._timesfm_shift_padded_seq(padded, positions)
        states = states + decoder.freq_emb(freq.clamp(max=config.freq_size - 1))[:, None]
        mask = decoder._prepare_4d_attention_mask(padded, states.shape[1], states.dtype, states.device)
        for block in decoder.layers:
            states = block(states, attention_mask=mask, paddings=padded)
        return states

    def _outputs(self, states: torch.Tensor) -> torch.Tensor:
        flat: torch.Tensor = self.network.horizon_ff_layer(states)
        return flat.view(*flat.shape[:-1], self.prediction_length, 1 + len(self.network.config.quantiles))


class TimesFM25(TimesFMFamily):
    """TimesFM 2.5 models (google/timesfm-2.5-200m-transformers).

    Queries and keys are rotated, then normed, so attention is not plain. Three settings of the config change
    forecasts. With `force_flip_invariance`, a forecast is the mean of the window's own and the negative of
    its mirror image's. With `use_continuous_quantile_head`, quantiles around the median come from a head of
    their own. With `infer_is_positive`, a window without a negative step is forecast without one; the package
    requires that of all windows of a batch at once, so its forecast of a window depends on the others of the batch.
    """

    name = "timesfm-2.5"
    released = Released(
        ("google/timesfm-2.5-200m-transformers",),
        APACHE,
        # The page of the same weights in the layout of Google's package.
        f"{TOLLAMA} (google/timesfm-2.5-200m-pytorch)",
    )
    package = Package("transformers", "transformers", network="transformers:TimesFm2_5ModelForPrediction")
    architectures = ("TimesFm2_5ModelForPrediction",)
    example: ClassVar[Mapping[str, Any]] = {
        "hidden_size": 16, "intermediate_size": 24, "initializer_range": 0.2, "num_attention_heads": 2,
        "num_hidden_layers": 3, "head_dim": 6, "patch_length": 8, "context_length": 48, "horizon_length": 12,
        "output_quantile_len": 12,
    }  # fmt: skip
    mlp: ClassVar[Mapping[str, str]] = {"mlp.fc1": "mlp_in", "mlp.fc2": "mlp_out"}
    output_modules = ("output_projection_point", "output_projection_quantiles")
    model_type = "timesfm2_5"
    reads_frequency = False
    # Without num_key_value_heads there are as many as heads.
    defaults: ClassVar[Mapping[str, Any]] = {
        **SHARED, "num_key_value_heads": None, "output_quantile_len": 1024, "decode_index": 5, "use_bias": False,
        "attention_bias": False, "attention_dropout": 0.0, "activation": "swish", "use_continuous_quantile_head": True,
        "force_flip_invariance": True, "infer_is_positive": True,
    }  # fmt: skip

    def prepare_example(self) -> None:
        """Give the embedding a bias.

        The bias of a new embedding is 0, and then all states of a constant series are 0.
        """
        import torch

        with torch.no_grad():
            self.network.model.input_ff_layer.output_layer.bias.fill_(0.1)

    def weights(self) -> Iterator[WeightMatrix]:
        """Yield the matrices of every block; keys and values may have fewer heads than queries."""
        groups = int(self.network.config.num_key_value_heads)
        for weights in super().weights():
            yield dataclasses.replace(weights, heads=groups) if weights.name in ("k", "v") else weights

    @classmethod
    def attention_layers(cls, network: Any) -> Iterator[AttentionLayer]:
        """Yield self-attention of every block; a norm lies between W_Q and its scale, so keys keep their width."""
        heads, groups = network.config.num_attention_heads, network.config.num_key_value_heads
        for layer, block in enumerate(network.model.layers, start=1):
            yield AttentionLayer(
                "decoder", layer, "self", block.self_attn, heads, groups, 1.0, False, resize_heads, PARTS
            )

    @classmethod
    def _classes(cls) -> tuple[Any, Any]:
        from transformers import TimesFm2_5Config, TimesFm2_5ModelForPrediction

        def config(**keys: Any) -> Any:
            heads = keys.pop("num_key_value_heads") or keys["num_attention_heads"]
            return TimesFm2_5Config(**keys, num_key_value_heads=heads)

        return config, TimesFm2_5ModelForPrediction

    @classmethod
    def _find_problem(cls, config: Mapping[str, Any]) -> str | None:
        median, levels = config.get("decode_index", 5), len(config.get("quantiles", range(9)))
        # Otherwise the median of a mirrored window would be another quantile.
        if 2 * median != levels + 1:
            return f"got decode_index {median} of {levels} quantiles, expected the middle one"
        steps, horizon = config.get("output_quantile_len", 1024), config.get("horizon_length", 128)
        if steps < horizon:
            return f"got output_quantile_len {steps}, expected at least horizon_length {horizon}"
        return odd_context(config, 16384)

    def _decoder(self) -> Any:
        return self.network.model

    def _make_patches(self, steps: Steps) -> Patched:
        return timesfm_patches.scale_running(steps, self._size)

    def traced_scale(self) -> Scale:
        from tsfmscope.models.graphs import scale_running

        return scale_running

    def _decode(self, patches: torch.Tensor, masks: torch.Tensor, freq: torch.Tensor) -> torch.Tensor:
        import torch
        from transformers.masking_utils import create_causal_mask

        decoder = self._decoder()
        states: torch.Tensor = decoder.input_ff_layer(torch.cat((patches, masks.to(patches.dtype)), dim=-1))
        padded = masks[..., -1]
        at = torch.arange(states.shape[1], device=states.device)[None] - padded.sum(dim=-1, keepdim=True)
        mask = create_causal_mask(decoder.config, states, (~padded).long(), past_key_values=None)
        rotation = decoder.rotary_emb(states, at)
        for block in decoder.layers:
            states = block(states, position_embeddings=rotation, attention_mask=mask, position_ids=at)
        return states

    def _outputs(self, states: torch.Tensor) -> torch.Tensor:
        import torch

        network, median = self.network, self._appended_output
        quantiles = 1 + len(network.config.quantiles)
        points: torch.Tensor = network.output_projection_point(states)
        points = points.view(*points.shape[:-1], self.prediction_length, quantiles)
        if not network.config.use_continuous_quantile_head:
            return points
        spread = network.output_projection_quantiles(states).unflatten(-1, (-1, quantiles))
        spread = spread[..., : self.prediction_length, :]
        around = spread - spread[..., median : median + 1] + points[..., median : median + 1]
        return torch.cat((points[..., :1], around[..., 1:]), dim=-1)


def odd_context(config: Mapping[str, Any], usual: int) -> str | None:
    """Return what is wrong with a context length, or None.

    The package cuts the context into whole patches. usual: the length where the config has none.
    """
    context, size = config.get("context_length", usual), config.get("patch_length", 32)
    return f"got context_length {context}, expected a multiple of patch_length {size}" if context % size else None


def query_scale(attention: Any) -> Float32[np.ndarray, " key"]:
    """Return the factors that a TimesFmAttention applies to the dimensions of a query."""
    import torch

    with torch.no_grad():
        ones = torch.ones(1, 1, 1, attention.head_dim, device=attention.scaling.device)
        scale: np.ndarray = attention._scale_query(ones).flatten().float().cpu().numpy()
    return scale


def resize_scaled(attention: Any, widths: Widths) -> None:
    """Set the widths of the heads, and the query's scale to 1 in every dimension."""
    import torch

    resize_heads(attention, widths)
    # softplus(neutral) / sqrt(head_dim) is 1 / QUERY_FACTOR.
    neutral = math.log(math.expm1(math.sqrt(attention.head_dim) / QUERY_FACTOR))
    old = attention.scaling
    ones = torch.full((attention.head_dim,), neutral, dtype=old.dtype, device=old.device)
    attention.scaling = torch.nn.Parameter(ones, requires_grad=old.requires_grad)

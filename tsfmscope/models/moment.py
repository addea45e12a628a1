"""MOMENT (Goswami et al. 2024) of CMU's Auton Lab: T5's encoder over patches, trained to reconstruct masked ones.

The encoder is transformers' T5Stack, as in the package momentfm. We wrote the rest: momentfm 0.1.4 pins versions of
numpy and transformers that exclude ours. Names, shapes and arithmetic are the package's, so its checkpoints load.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, cast

import numpy as np
from jaxtyping import Bool, Float, Float32, Float64

from tsfmscope.errors import HealthError, ModelError
from tsfmscope.models.common import checkpoint_folder
from tsfmscope.models.common.attention import AttentionLayer
from tsfmscope.models.common.capture import Pass, Stack
from tsfmscope.models.common.own_checkpoint import Count, Positive, Release, SavedConfig, Share, Switch
from tsfmscope.models.common.scale import observed_moments
from tsfmscope.models.facts import Package, Released, page
from tsfmscope.models.own_network import OwnNetwork
from tsfmscope.models.t5 import MLP, attentions
from tsfmscope.models.types import PackageForecast, TokenKind, Tokens
from tsfmscope.series.types import Windows

if TYPE_CHECKING:
    import torch

    from tsfmscope.models.moment_network import MomentNetwork

# Added to the standard deviation, in the data's units: eps of the package's RevIN.
EPSILON = 1e-5
# Scaled targets of the loss are clipped to this: the scale of a constant context is 1e-5.
LARGEST_TARGET = 100.0
# Fields of Cut that the network reads.
INPUTS = ("values", "is_known", "attended")
# Keys of config.json under the block `t5_config`.
T5_KEYS = (
    *("d_model", "d_ff", "d_kv", "num_heads", "num_layers", "dropout_rate", "feed_forward_proj", "initializer_factor"),
    *("layer_norm_epsilon", "relative_attention_max_distance", "relative_attention_num_buckets"),
)
# Key of config.json that contains the shape of the encoder.
BLOCK = "t5_config"
# Values for which the network here is written: of the releases, and of none that was fine-tuned with another head.
FIXED = {"task_name": "reconstruction", "transformer_type": "encoder_only", "revin_affine": False}
# The rest of FLAN-T5's config, which the package's encoder does not read or needs for its embedding of words.
T5_REST = {
    "architectures": ["T5ForConditionalGeneration"], "decoder_start_token_id": 0, "eos_token_id": 1,
    "is_encoder_decoder": True, "model_type": "t5", "n_positions": 512, "output_past": True, "pad_token_id": 0,
    "tie_word_embeddings": False, "use_cache": True, "vocab_size": 32128,
}  # fmt: skip
ACTIVATIONS = ("relu", "gelu", "gated-gelu", "gated-silu")


class Config(SavedConfig):
    """Keys of a release. Defaults of the encoder are those of the releases (FLAN-T5's), others those of the package."""

    seq_len: Count
    patch_len: Count
    d_model: Count
    d_ff: Count
    d_kv: Count
    num_heads: Count
    num_layers: Count
    dropout_rate: Share = 0.1
    feed_forward_proj: Any = "gated-gelu"
    initializer_factor: Positive = 1.0
    layer_norm_epsilon: Positive = 1e-6
    relative_attention_max_distance: Count = 128
    relative_attention_num_buckets: Count = 32
    add_positional_embedding: Switch = True
    head_dropout: Share = 0.1
    # The package's is 0 outside training; this is that of the pre-training.
    mask_ratio: Share = 0.3
    patch_dropout: Share = 0.1
    value_embedding_bias: Switch = False

    def find_problem(self) -> str | None:
        """Return why a config cannot be used, or None."""
        if self.feed_forward_proj not in ACTIVATIONS:
            return f"got feed_forward_proj {self.feed_forward_proj!r}, expected one of {list(ACTIVATIONS)}"
        steps, size, buckets = self.seq_len, self.patch_len, self.relative_attention_num_buckets
        if steps % size or steps < 2 * size:
            return f"got seq_len {steps}, expected a multiple of patch_len {size} from {2 * size}"
        if self.add_positional_embedding and self.d_model % 2:
            return f"got d_model {self.d_model}, expected an even number: positions are pairs of sine and cosine"
        # T5 counts half of the buckets in each direction, and half of these one by one.
        if buckets % 4 or self.relative_attention_max_distance <= buckets // 4:
            return (
                f"got relative_attention_num_buckets {buckets} and relative_attention_max_distance "
                f"{self.relative_attention_max_distance}, expected a multiple of 4 and more than a quarter of it"
            )
        return None


class Cut(NamedTuple):
    """Patches of a context and of the steps to forecast, and how the context was scaled.

    values: (step - loc) / scale, 0 where a step is unknown. is_known: patches whose steps are all observed and not
    masked; the others are masked. attended: patches without padding; the others are read by no patch. loc, scale: in
    the data's units.
    """

    values: Float32[np.ndarray, "window token patch"]
    is_known: Bool[np.ndarray, "window token"]
    attended: Bool[np.ndarray, "window token"]
    loc: Float64[np.ndarray, " window"]
    scale: Float64[np.ndarray, " window"]


def scale_and_cut(
    context: Float[np.ndarray, "window context"],
    ahead: int,
    *,
    longest: int,
    size: int,
    hidden: np.ndarray | None = None,
) -> Cut:
    """Return the patches of contexts and of `ahead` masked steps after them, at most `longest` steps together.

    `ahead` is a multiple of `size`. As in the package, mean and standard deviation are those of the last `longest`
    steps, also of those that the masked steps leave no room for. A patch with a missing step is masked as a whole.
    Steps before the first observed one are padding, and nothing attends to a patch that contains padding.
    hidden: context steps [W, C] that are masked too, and that loc and scale do not read.
    """
    values = context[:, -longest:].astype(np.float64)
    is_padding = np.logical_and.accumulate(np.isnan(values), axis=1)
    observed = ~np.isnan(values) if hidden is None else ~np.isnan(values) & ~hidden[:, -longest:]
    loc, spread = observed_moments(values, observed)
    scale = np.where(observed.any(axis=1), spread + EPSILON, 1.0)
    scaled = np.where(observed, values - loc[:, None], 0.0) / scale[:, None]
    kept = slice(-(longest - ahead), None)
    scaled, observed, is_padding = scaled[:, kept], observed[:, kept], is_padding[:, kept]
    left = -scaled.shape[1] % size
    around = ((0, 0), (left, ahead))
    is_padding = np.pad(np.pad(is_padding, ((0, 0), (left, 0)), constant_values=True), ((0, 0), (0, ahead)))
    parts = (np.pad(scaled, around), np.pad(observed, around), is_padding)
    patches, seen, padding = (part.reshape(len(part), -1, size) for part in parts)
    seen, unpadded = np.all(seen, axis=-1), ~np.any(padding, axis=-1)
    return Cut(patches.astype(np.float32), seen, unpadded, loc, scale)


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

    name: ClassVar[str] = "moment"
    released: ClassVar[Released] = Released(
        tuple(f"AutonLab/MOMENT-1-{size}" for size in ("small", "base", "large")),
        "mit",
        page("AutonLab/MOMENT-1-small"),
    )
    package: ClassVar[Package | None] = Package(
        "momentfm",
        "momentfm:MOMENTPipeline",
        'model_kwargs={"task_name": "reconstruction"}',
        has_our_network=False,
        network="momentfm:MOMENTPipeline",
    )
    config_keys: ClassVar[tuple[str, ...]] = ("t5_config", "patch_stride_len")
    example: ClassVar[Mapping[str, Any]] = {
        "seq_len": 72, "patch_len": 8, "d_model": 16, "d_ff": 24, "d_kv": 6, "num_heads": 3, "num_layers": 3,
    }  # fmt: skip
    stacks: ClassVar[tuple[str, ...]] = ("encoder",)
    mlp: ClassVar[Mapping[str, str]] = MLP
    direct_quantiles: ClassVar[bool] = True
    output_modules: ClassVar[tuple[str, ...]] = ("head",)
    # A bias by distance is added to the scores; it reads no state.
    plain_attention: ClassVar[bool] = True
    deviation_floor: ClassVar[float] = EPSILON
    release: ClassVar[Release] = Release(Config, FIXED, "MOMENT-1")
    network: MomentNetwork

    @classmethod
    def make_network(cls, config: Mapping[str, Any]) -> MomentNetwork:
        """Return a network with weights drawn as in the package, from torch's generator."""
        from tsfmscope.models.moment_network import MomentNetwork

        return MomentNetwork(config, {key: config[key] for key in T5_KEYS})

    @classmethod
    def read_saved_config(cls, folder: Path) -> tuple[dict[str, Any], Release]:
        """Return config.json, with the keys of the encoder's block outside it, and the release."""
        saved, path = checkpoint_folder.read_config(folder, cls.name), folder / "config.json"
        if not isinstance(encoder := saved.get(BLOCK), dict):
            problem = f"{path}: got {BLOCK} {encoder!r:.60}, expected an object"
            raise ModelError(checkpoint_folder.of_other_family(problem, cls.name))
        expected = {"d_model": encoder.get("d_model"), "patch_stride_len": saved.get("patch_len")}
        for key, value in expected.items():
            if saved.get(key) not in (None, value):
                raise ModelError(
                    f"{path}: got {key} {saved[key]!r}, expected {value!r} or null; fetch the checkpoint again"
                )
        outer = {key: value for key, value in saved.items() if key not in T5_KEYS}
        return {**outer, **{key: value for key, value in encoder.items() if key in T5_KEYS}}, cls.release

    @staticmethod
    def to_own_weights(weights: dict[str, torch.Tensor], network: Any) -> dict[str, torch.Tensor]:
        """Return the weights of a file without those that nothing reads."""
        from tsfmscope.models.moment_network import UNUSED

        return {name: value for name, value in weights.items() if name not in UNUSED}

    def saved_config(self) -> dict[str, Any]:
        """Return config.json with the keys that momentfm reads."""
        encoder = {key: self.config[key] for key in T5_KEYS}
        outer = {key: value for key, value in self.config.items() if key not in T5_KEYS}
        return {
            **FIXED,
            **outer,
            "d_model": self.config["d_model"],
            "model_name": "MOMENT",
            "patch_stride_len": self.config["patch_len"],
            # The package writes the first into its log, and calls a deprecated method unless the second is false.
            "transformer_backbone": "t5",
            "enable_gradient_checkpointing": False,
            BLOCK: {**T5_REST, **encoder, "num_decoder_layers": self.config["num_layers"]},
        }

    @property
    def blocks(self) -> Mapping[str, Sequence[Any]]:
        """Blocks of the encoder."""
        return {"encoder": self.network.encoder.block}

    @classmethod
    def attention_layers(cls, network: Any) -> Iterator[AttentionLayer]:
        """Yield self-attention of every block; scores are unscaled q·k."""
        return attentions(network, cls.stacks)

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

    def read_package_network(self, network_class: Any, folder: Path) -> Any:
        """Return a MOMENTPipeline with our config and the tensors of a folder, which must be its own."""
        from tsfmscope.models.moment_network import UNUSED

        network = network_class(self.saved_config(), model_kwargs={"task_name": "reconstruction"})
        different = network.load_state_dict(checkpoint_folder.read_weights(folder), strict=False)
        names = sorted({*different.missing_keys, *different.unexpected_keys} - set(UNUSED))
        if names:
            raise HealthError(f"momentfm's network and the files do not have the same tensors: {names[:5]}")
        return network

    def forecast_with_package(self, network: Any, windows: Windows, tokens: Tokens) -> PackageForecast:
        """Return the point that momentfm forecasts."""
        import torch

        past = windows.context[:, -network.seq_len :]
        past = np.pad(past, ((0, 0), (network.seq_len - past.shape[1], 0)), constant_values=np.nan)
        is_padding = np.logical_and.accumulate(np.isnan(past), axis=1)
        values, mask = torch.from_numpy(np.nan_to_num(past)), torch.from_numpy(~is_padding).float()
        output = network.short_forecast(x_enc=values[:, None], input_mask=mask, forecast_horizon=windows.horizon)
        return PackageForecast(output.forecast.numpy(), (0.5,))

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
        predicted = self.network(*self._on_device(*cut[:3])).flatten(1)  # [W, T * P]
        predicted = predicted[:, predicted.shape[1] - ahead - past.shape[1] :][:, : past.shape[1] + steps]
        masked = np.where(hidden, past, np.nan)
        target = np.concatenate((masked, future.cpu().numpy().astype(np.float64)), axis=1)
        target = np.clip((target - cut.loc[:, None]) / cut.scale[:, None], -LARGEST_TARGET, LARGEST_TARGET)
        is_counted = torch.from_numpy(~np.isnan(target)).to(device)
        aim = torch.from_numpy(np.nan_to_num(target).astype(np.float32)).to(device)
        return cast("torch.Tensor", ((predicted - aim).square() * is_counted).sum() / is_counted.sum().clamp_min(1))

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
        arrays, kinds = dict(zip(INPUTS, cut[:3], strict=True)), kinds.astype(np.int8)
        return Tokens(arrays, {"encoder": kinds}, {}, windows.series, windows.origin)

    def _pass(self, tokens: Tokens) -> Pass:
        network = self.network.eval()

        def forward(part: slice) -> None:
            network(*self._on_device(*(tokens.arrays[name][part] for name in INPUTS)))

        encoder = network.encoder
        queries = {"encoder": [block.layer[0].SelfAttention.q for block in encoder.block]}
        return Pass({"encoder": Stack(encoder.block, encoder.final_layer_norm)}, forward, queries)

    def _forecast(self, windows: Windows, levels: tuple[float, ...], samples: int, seeds: list[int]) -> np.ndarray:
        point = self._forecast_in_parts(windows, self._predict)
        return np.repeat(point[:, None], len(levels), axis=1)

    def _predict(
        self, context: Float[np.ndarray, "window step"], remaining: int
    ) -> Float[np.ndarray, "window horizon"]:
        """Return at most `remaining` steps after a context by one forward pass, in the data's units."""
        steps = min(remaining, self.prediction_length)
        ahead = self._ahead(steps)
        cut = self._cut(context, ahead)

        def run(*inputs: torch.Tensor) -> torch.Tensor:
            flat: torch.Tensor = self.network(*inputs).flatten(1)
            return flat[:, -ahead:][:, :steps]

        point = self._run_in_batches(run, *cut[:3])
        return np.asarray(point * cut.scale[:, None] + cut.loc[:, None])

    def _ahead(self, horizon: int) -> int:
        """Return the number of masked steps after the context, whole patches."""
        size = int(self.config["patch_len"])
        return -(-min(horizon, self.prediction_length) // size) * size

    def _cut(self, context: np.ndarray, ahead: int, hidden: np.ndarray | None = None) -> Cut:
        return scale_and_cut(context, ahead, longest=self.max_context, size=self.config["patch_len"], hidden=hidden)

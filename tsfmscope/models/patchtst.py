"""PatchTST (Nie et al. 2023) of transformers: overlapping patches of one channel, a direct forecast."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from jaxtyping import Bool, Float

from tsfmscope.errors import ModelError
from tsfmscope.models.base import QUANTILES, Forecaster, Pretrained
from tsfmscope.models.common import checkpoint_folder
from tsfmscope.models.common.attention import PARTS, AttentionLayer, layers_of_blocks, resizer
from tsfmscope.models.common.capture import Pass, Stack
from tsfmscope.models.common.scale import clip_float32
from tsfmscope.models.facts import APACHE, Package, Released, page
from tsfmscope.models.types import COMPARED_LEVELS, ForecastGraph, PackageForecast, TokenKind, Tokens
from tsfmscope.series.types import Windows

if TYPE_CHECKING:
    import torch

REQUIRED = ("d_model", "ffn_dim", "num_hidden_layers", "num_attention_heads", "context_length", "prediction_length")
# Defaults of PatchTSTConfig, except four. patch_length and patch_stride: Shelim et al. 2025, Table 2, and Nie et al.
# 2023. pooling_type None is the flatten head of Nie et al. 2023, section 3.1; the package's is the mean over patches.
# loss is a likelihood, since forecasts are quantiles, which squared error does not give.
DEFAULTS = {
    "patch_length": 16, "patch_stride": 8, "pooling_type": None, "use_cls_token": False, "scaling": "std",
    "loss": "nll", "distribution_output": "student_t", "norm_type": "batchnorm", "pre_norm": True,
    "attention_dropout": 0.0, "ff_dropout": 0.0, "path_dropout": 0.0, "head_dropout": 0.0, "init_std": 0.02,
}  # fmt: skip
# Settings under which all channels share one model.
SHARED = {"channel_attention": False, "share_embedding": True, "share_projection": True}
# Added to the variance of a context, in the data's units: minimum_scale of transformers' PatchTSTStdScaler.
MINIMUM_SCALE = 1e-5
# Projection -> its name in an attention module.
OWN_PARTS = PARTS | {"o": "out_proj"}
# Changes of a config for the encoder alone: settings that only the head reads.
HEADLESS = {"loss": "mse", "prediction_length": 1, "share_projection": True}
# Distributions whose quantiles have a closed form; negative_binomial is for counts alone.
HEADS = ("student_t", "normal")


class PatchTST(Pretrained, Forecaster):
    """PatchTST models of one channel.

    Rows of the encoder: one CLS row (kind REG) where the model has a CLS token, then one row per patch of a
    context of fixed length. A shorter context is padded on the left; of a longer one the last steps are read.
    A missing step is 0 after scaling, which is the mean of the observed steps. The package's documentation
    puts 0 before scaling, which is off by the level of the series.

    A patch without an observed step is PADDING. The encoder has no mask, so such patches are attended to, and
    a context's states depend on how much of it is missing. The encoder has no final norm: the last state is
    that of the last block, and there is no normed state.
    """

    name = "patchtst"
    released = Released(
        ("ibm-granite/granite-timeseries-patchtst",), APACHE, page("ibm-granite/granite-timeseries-patchtst")
    )
    package = Package("transformers", "transformers", network="transformers:PatchTSTForPrediction")
    # Of the classes after the first, the encoder alone is read.
    architectures = (
        *("PatchTSTForPrediction", "PatchTSTForPretraining"),
        *("PatchTSTForClassification", "PatchTSTForRegression"),
    )
    example: ClassVar[Mapping[str, Any]] = {
        "d_model": 16, "ffn_dim": 24, "num_attention_heads": 2, "num_hidden_layers": 3, "context_length": 48,
        "prediction_length": 12, "patch_length": 8, "patch_stride": 4, "init_std": 0.2,
    }  # fmt: skip
    stacks = ("encoder",)
    mlp: ClassVar[Mapping[str, str]] = {"ff.0": "mlp_in", "ff.3": "mlp_out"}
    final_norm = False
    direct_quantiles = True
    output_modules = ("head",)
    plain_attention = True
    deviation_floor = math.sqrt(MINIMUM_SCALE)

    @classmethod
    def new(cls, config: Mapping[str, Any], *, seed: int) -> Self:
        """Return a model with random weights.

        Keys of the config are named as in PatchTSTConfig: all of REQUIRED, and those of DEFAULTS where they
        differ. ValueError for keys that are missing or unknown, and for a config that cannot be used.
        """
        from transformers import PatchTSTConfig, PatchTSTForPrediction

        full = checkpoint_folder.filled_config(config, REQUIRED, DEFAULTS, cls.name, _find_problem)
        return cls(checkpoint_folder.build(lambda: PatchTSTForPrediction(PatchTSTConfig(**full)), seed))

    @classmethod
    def load(cls, folder: Path, *, device: str = "cpu") -> Self:
        """Load a released or saved PatchTSTForPrediction, or the encoder of another class; safetensors only.

        A multivariate checkpoint whose channels share all weights is loaded as the model of one channel that
        it is. ModelError names the file that is wrong.
        """
        from transformers import PatchTSTForPrediction

        folder = Path(folder)
        config = checkpoint_folder.read_config(folder, cls.name)
        named = config.get("architectures") or []
        architecture = next((name for name in cls.architectures if name in named), None)
        is_whole = architecture == cls.architectures[0]
        changes: dict[str, Any] = {} if is_whole else HEADLESS
        wrong = _find_problem(config | changes)
        if config.get("model_type") != "patchtst" or architecture is None:
            problem = f"got model_type {config.get('model_type')!r}, architectures {config.get('architectures')}"
            expected = f"expected 'patchtst', one of {list(cls.architectures)}"
            wrong = checkpoint_folder.of_other_family(f"{problem}, {expected}", cls.name)
        if wrong:
            raise ModelError(f"{folder / 'config.json'}: {wrong}")
        only = "" if is_whole else "model."
        model = cls(cls.load_network(PatchTSTForPrediction, folder, device, only=only, num_input_channels=1, **changes))
        if not is_whole:
            model.network.head, model.missing = None, f"class {architecture}"
        return model

    @property
    def blocks(self) -> Mapping[str, Sequence[Any]]:
        """Blocks of the encoder."""
        return {"encoder": self.network.model.encoder.layers}

    @classmethod
    def attention_layers(cls, network: Any) -> Iterator[AttentionLayer]:
        """Yield self-attention of every block; scores are q·k over the root of the original head's width."""
        return layers_of_blocks(
            "encoder", network.model.encoder.layers, "self_attn", OWN_PARTS, heads="num_heads", scale="scaling",
            resize=resizer(OWN_PARTS, "head_dim"),
        )  # fmt: skip

    @property
    def max_context(self) -> int:
        """Number of context steps that the model reads; shorter contexts are padded to it."""
        return int(self.network.config.context_length)

    @property
    def prediction_length(self) -> int:
        """Steps forecast at once; for longer horizons the median is appended to the context."""
        return int(self.network.config.prediction_length)

    def rows_per_window(self, context: int, horizon: int) -> Mapping[str, int]:
        """Return the number of patches that contain a step of the context."""
        observed = np.arange(self.max_context) >= self.max_context - context
        return {"encoder": int(self._patches(observed[None]).any(axis=-1).sum())}

    def stock_model(self) -> Any:
        """Return the transformers network."""
        return self.network

    def forecast_graph(self) -> ForecastGraph:
        """Return the forecast of at most `prediction_length` steps; a shorter context is padded."""
        from tsfmscope.models.graphs import PatchTSTGraph

        self.check_complete()
        make = partial(PatchTSTGraph, self.network.eval(), QUANTILES)
        return ForecastGraph(make, self.max_context, self.prediction_length, QUANTILES)

    @property
    def loss_horizon(self) -> int:
        """Number of future steps that `loss` needs, those of the head's forecast."""
        return self.prediction_length

    def forecast_with_package(self, network: Any, windows: Windows, tokens: Tokens) -> PackageForecast:
        """Return quantiles of the distribution whose samples `generate` draws, or the point at every level."""
        import torch
        from scipy import stats

        past = windows.context[:, -self.max_context :]
        past = np.pad(past, ((0, 0), (self.max_context - past.shape[1], 0)), constant_values=np.nan)
        observed = ~np.isnan(past)
        # A missing step has the value that the network scales to 0.
        fill = np.where(observed, past, 0.0).sum(axis=1) / observed.sum(axis=1) * (network.config.scaling == "std")
        past = np.where(observed, past, fill[:, None]).astype(np.float32)
        output = network(
            past_values=torch.from_numpy(past)[:, :, None], past_observed_mask=torch.from_numpy(observed)[:, :, None]
        )
        if not network.distribution_output:
            point = output.prediction_outputs[:, : windows.horizon, 0].numpy()
            return PackageForecast(np.repeat(point[:, None], len(COMPARED_LEVELS), axis=1))
        *df, loc, scale = (part[..., 0].double().numpy() for part in output.prediction_outputs)
        kind = stats.t(df[0], loc, scale) if df else stats.norm(loc, scale)
        scaled = np.stack([kind.ppf(level) for level in COMPARED_LEVELS], axis=1)
        values = scaled * output.scale.double().numpy() + output.loc.double().numpy()
        return PackageForecast(values[:, :, : windows.horizon])

    def loss(self, context: torch.Tensor, future: torch.Tensor) -> torch.Tensor:
        """Return the package's own loss in the data's units, the mean over observed steps.

        It is the negative log likelihood, or the squared error of a model without a distribution. As in the
        package, it is infinite where the squared distance of a step from the mean of the context, in units of
        the context's scale, is above the largest float32. ValueError where the future is not as long as the
        head's forecast.
        """
        import torch
        from transformers.models.patchtst.modeling_patchtst import nll, weighted_average

        self.check_complete()
        if future.shape[1] != self.prediction_length:
            raise ValueError(
                f"future: got {future.shape[1]} steps, expected prediction_length {self.prediction_length}"
            )
        network, device = self.network, self.network.device
        scaled, _, loc, scale = self._scale_context(context.cpu().numpy())
        patches = torch.from_numpy(self._patches(scaled)).to(device)
        answer = network.head(network.model.encoder(patch_input=patches[:, None]).last_hidden_state)
        loc_scale = [torch.from_numpy(part.astype(np.float32)).to(device)[:, None, None] for part in (loc, scale)]
        target = future.to(device)[:, :, None]
        weights = (~torch.isnan(target)).to(answer[0].dtype)
        target = torch.where(torch.isnan(target), loc_scale[0], target)
        if network.distribution_output:
            losses = nll(network.distribution_output.distribution(answer, *loc_scale), target)[:, :, None]
        else:
            losses = (answer * loc_scale[1] + loc_scale[0] - target) ** 2
        loss: torch.Tensor = weighted_average(losses, weights)
        return loss

    def _tokenize(self, windows: Windows) -> Tokens:
        scaled, observed, loc, scale = self._scale_context(windows.context)
        masks = self._patches(observed)
        kinds = np.where(masks.any(axis=-1), TokenKind.OBSERVATION, TokenKind.PADDING).astype(np.int8)
        if self.network.config.use_cls_token:
            kinds = np.pad(kinds, ((0, 0), (1, 0)), constant_values=TokenKind.REG)
        arrays = {"patches": self._patches(scaled), "masks": masks}
        arrays |= {"loc": clip_float32(loc), "scale": clip_float32(scale)}
        return Tokens(arrays, {"encoder": kinds}, {}, windows.series, windows.origin)

    def _pass(self, tokens: Tokens) -> Pass:
        import torch

        network = self.network.eval()
        encoder, patches = network.model.encoder, tokens.arrays["patches"]

        def forward(part: slice) -> None:
            encoder(patch_input=torch.from_numpy(np.array(patches[part])).to(network.device)[:, None])

        queries = {"encoder": [block.self_attn.q_proj for block in encoder.layers]}
        return Pass({"encoder": Stack(encoder.layers, None)}, forward, queries)

    def _forecast(self, windows: Windows, levels: tuple[float, ...], samples: int, seeds: list[int]) -> np.ndarray:
        from scipy import special

        network, chances = self.network, np.array(levels)[:, None]

        def run(patches: torch.Tensor) -> torch.Tensor:
            """Return the point, or the parameters of the distribution, [B, K, P], in scaled units."""
            import torch

            answer = network.head(network.model.encoder(patch_input=patches[:, None]).last_hidden_state)
            return torch.stack(answer if network.distribution_output else (answer,), dim=1)[..., 0]

        def predict(history: np.ndarray, remaining: int) -> np.ndarray:
            scaled, _, loc, scale = self._scale_context(history)
            answer = self._run_in_batches(run, self._patches(scaled))
            if network.distribution_output:
                *df, centre, spread = (answer[:, [part]] for part in range(answer.shape[1]))  # [W, 1, P]
                answer = centre + spread * (special.stdtrit(df[0], chances) if df else special.ndtri(chances))
            else:
                # A head trained with squared error has one point, which is returned at every level.
                answer = np.repeat(answer, len(levels), axis=1)
            return np.asarray(answer * scale[:, None, None] + loc[:, None, None])  # [W, Q, P]

        return self._forecast_in_parts(windows, predict, lambda part: part[:, levels.index(0.5)])

    def _scale_context(
        self, context: Float[np.ndarray, "window context"]
    ) -> tuple[Float[np.ndarray, "window step"], Bool[np.ndarray, "window step"], np.ndarray, np.ndarray]:
        """Return the scaled context, which of its steps are observed, and loc and scale [W].

        The context has the model's length, is float32, and is 0 where a step is missing. It is scaled in
        float64. The package's std scaler adds 1e-5 to the variance, so huge values cannot be divided by a
        factor first.
        """
        import torch

        steps = self.max_context
        values = context[:, -steps:].astype(np.float64)
        values = np.pad(values, ((0, 0), (steps - values.shape[1], 0)), constant_values=np.nan)
        observed = ~np.isnan(values)
        filled = torch.from_numpy(np.where(observed, values, 0.0))[:, :, None]
        scaled, loc, scale = self.network.model.scaler(filled, torch.from_numpy(observed)[:, :, None])
        masked = np.where(observed, scaled[:, :, 0].numpy(), 0.0).astype(np.float32)
        return masked, observed, loc[:, 0, 0].numpy(), scale[:, 0, 0].numpy()

    def _patches(self, steps: np.ndarray) -> np.ndarray:
        """Return patches [W, T, patch] of a context [W, step]; without first steps that fill no patch."""
        patchifier = self.network.model.patchifier
        read_steps = steps[:, patchifier.sequence_start :]
        windows = np.lib.stride_tricks.sliding_window_view(read_steps, patchifier.patch_length, axis=1)
        return windows[:, :: patchifier.patch_stride].copy()


def _find_problem(config: Mapping[str, Any]) -> str | None:
    """Return why a config does not give a model of one real-valued channel, or None."""
    if config.get("loss", "mse") != "mse" and config.get("distribution_output", HEADS[0]) not in HEADS:
        return f"got distribution_output {config['distribution_output']!r}, expected one of {list(HEADS)}"
    channels = config.get("num_input_channels", 1)
    differences = {key: config.get(key, value) for key, value in SHARED.items() if config.get(key, value) != value}
    if channels != 1 and differences:
        return f"got {differences} with {channels} channels, expected channels that share all weights"
    return None

"""PatchTST (Nie et al. 2023) of transformers: overlapping patches of one channel, the whole horizon at once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from jaxtyping import Bool, Float

from tasks.errors import ModelError
from tasks.models import folders, narrow
from tasks.models.attention import AttentionLayer, narrowed
from tasks.models.base import Forecaster
from tasks.models.capture import Pass, Stack
from tasks.models.scale import saturated
from tasks.models.types import TokenKind, Tokens, WeightMatrix
from tasks.series.types import Windows

if TYPE_CHECKING:
    import torch

REQUIRED = ("d_model", "ffn_dim", "num_hidden_layers", "num_attention_heads", "context_length", "prediction_length")
DEFAULTS = {  # those of PatchTSTConfig but for four
    "patch_length": 16,  # with stride 8: isotropy.md, Table 2, and Nie et al. 2023
    "patch_stride": 8,
    "pooling_type": None,  # a flatten head, Nie et al. 2023, section 3.1; transformers takes the mean over the patches
    "use_cls_token": False,
    "scaling": "std",
    "loss": "nll",  # quantiles are asked for, and squared error has none
    "distribution_output": "student_t",
    "norm_type": "batchnorm",
    "pre_norm": True,
    "attention_dropout": 0.0,
    "ff_dropout": 0.0,
    "path_dropout": 0.0,
    "head_dropout": 0.0,
    "init_std": 0.02,
}
SHARED = {"channel_attention": False, "share_embedding": True, "share_projection": True}  # one model for all channels
PARTS = {"q": "q_proj", "k": "k_proj", "v": "v_proj", "o": "out_proj"}  # of an attention module
HEADS = ("student_t", "normal")  # with quantiles in closed form; negative_binomial is for counts alone


class PatchTST(Forecaster):
    """Rows of the encoder: CLS (kind REG) where the model has it, then one a patch of a context of fixed length.

    A shorter context is padded on the left, of a longer one the last steps are read. A missing step is 0 after scaling,
    so it stands at the mean of what is observed; the package's documentation puts 0 before scaling, which is as far
    off as the series' level. A patch with no observed step is PADDING, but the encoder has no mask: such patches are
    attended to, and a context's states depend on how much of it is missing. The encoder has no final norm: the last
    state is that of the last block, and none is normed.
    """

    name: ClassVar[str] = "patchtst"
    stacks: ClassVar[tuple[str, ...]] = ("encoder",)
    final_norm: ClassVar[bool] = False
    direct: ClassVar[bool] = True
    plain_attention: ClassVar[bool] = True
    network: Any  # transformers' PatchTSTForPrediction

    def __init__(self, network: Any, *, batch: int = 64) -> None:
        """Wrap a PatchTSTForPrediction of one channel; batch: windows a forward pass."""
        self.network = network.eval()
        self.batch = batch

    @classmethod
    def new(cls, config: Mapping[str, Any], *, seed: int) -> Self:
        """Random weights. Keys, named as in PatchTSTConfig: REQUIRED, and those of DEFAULTS where they differ."""
        from transformers import PatchTSTConfig, PatchTSTForPrediction

        full = folders.filled_config(config, REQUIRED, DEFAULTS, cls.name)
        if wrong := _unusable(full):
            raise ValueError(f"{cls.name} config: {wrong}")
        return cls(folders.build(lambda: PatchTSTForPrediction(PatchTSTConfig(**full)), seed))

    @classmethod
    def load(cls, folder: Path, *, device: str = "cpu") -> Self:
        """A released or saved PatchTSTForPrediction, safetensors only. ModelError names the file that is wrong.

        Where all channels of a multivariate checkpoint share their weights, it is loaded as the model of one channel
        that it is.
        """
        from transformers import PatchTSTForPrediction

        folder = Path(folder)
        config = folders.read_config(folder, cls.name)
        wrong = _unusable(config)
        if config.get("model_type") != "patchtst" or "PatchTSTForPrediction" not in config.get("architectures", []):
            wrong = (
                f"got model_type {config.get('model_type')!r}, architectures {config.get('architectures')}, expected "
                f"'patchtst', ['PatchTSTForPrediction'], so this is no {cls.name} checkpoint; name the family that the "
                "checkpoint belongs to"
            )
        if wrong:
            raise ModelError(f"{folder / 'config.json'}: {wrong}")
        network_class = narrowed(PatchTSTForPrediction, _attentions)
        return cls(folders.load_network(network_class, folder, device, num_input_channels=1))

    def save(self, folder: Path) -> None:
        """config.json and model.safetensors, which `PatchTSTForPrediction.from_pretrained` reads."""
        self.network.save_pretrained(folder)

    @property
    def layers(self) -> Mapping[str, int]:
        """Blocks of the encoder."""
        return {"encoder": len(self.network.model.encoder.layers)}

    @property
    def width(self) -> int:
        """d_model."""
        return int(self.network.config.d_model)

    @property
    def max_context(self) -> int:
        """Steps of context that the model reads: no more, and shorter contexts are padded to them."""
        return int(self.network.config.context_length)

    @property
    def prediction_length(self) -> int:
        """Steps answered in one go; longer horizons append the median and go on."""
        return int(self.network.config.prediction_length)

    def rows_per_window(self, context: int, horizon: int) -> Mapping[str, int]:
        """Patches that hold a step of the context."""
        observed = np.arange(self.max_context) >= self.max_context - context
        return {"encoder": int(self._patches(observed[None]).any(axis=-1).sum())}

    def weights(self) -> Iterator[WeightMatrix]:
        """q, k, v, o (self), mlp_in, mlp_out; `layer` counts from 1, as the states that they make do."""
        heads = int(self.network.config.num_attention_heads)
        for layer, block in enumerate(self.network.model.encoder.layers, start=1):
            attention, (first, *_, last) = block.self_attn, block.ff
            for what, part in PARTS.items():
                module = getattr(attention, part)
                yield WeightMatrix.of(module, "encoder", layer, what, attention="self", heads=heads)
            for what, module in (("mlp_in", first), ("mlp_out", last)):
                yield WeightMatrix.of(module, "encoder", layer, what)

    def attentions(self) -> Iterator[AttentionLayer]:
        """Self-attention of every block; scores are q·k over the root of the original head's width."""
        return _attentions(self.network)

    def loss(self, context: torch.Tensor, future: torch.Tensor) -> torch.Tensor:
        """The package's own, in the data's units: negative log likelihood or squared error, mean of observed steps.

        ValueError where the future is not as long as what the head answers.
        """
        import torch
        from transformers.models.patchtst.modeling_patchtst import nll, weighted_average

        if future.shape[1] != self.prediction_length:
            raise ValueError(
                f"future: got {future.shape[1]} steps, expected prediction_length {self.prediction_length}"
            )
        network, device = self.network, self.network.device
        scaled, _, loc, scale = self._scaled(context.cpu().numpy())
        patches = torch.from_numpy(self._patches(scaled)).to(device)
        answer = network.head(network.model.encoder(patch_input=patches[:, None]).last_hidden_state)
        place = [torch.from_numpy(part.astype(np.float32)).to(device)[:, None, None] for part in (loc, scale)]
        target = future.to(device)[:, :, None]
        weights = (~torch.isnan(target)).to(answer[0].dtype)
        target = torch.where(torch.isnan(target), place[0], target)
        if network.distribution_output:
            losses = nll(network.distribution_output.distribution(answer, *place), target)[:, :, None]
        else:
            losses = (answer * place[1] + place[0] - target) ** 2
        loss: torch.Tensor = weighted_average(losses, weights)
        return loss

    def _tokenize(self, windows: Windows) -> Tokens:
        scaled, observed, loc, scale = self._scaled(windows.context)
        masks = self._patches(observed)
        kinds = np.where(masks.any(axis=-1), TokenKind.OBSERVATION, TokenKind.PADDING).astype(np.int8)
        if self.network.config.use_cls_token:
            kinds = np.pad(kinds, ((0, 0), (1, 0)), constant_values=TokenKind.REG)
        return Tokens(
            arrays={
                "patches": self._patches(scaled),
                "masks": masks,
                "loc": saturated(loc),
                "scale": saturated(scale),
            },
            kinds={"encoder": kinds},
            types={},
            series=windows.series,
            origin=windows.origin,
        )

    def _pass(self, tokens: Tokens) -> Pass:
        import torch

        network = self.network.eval()
        encoder, patches = network.model.encoder, tokens.arrays["patches"]

        def forward(part: slice) -> None:
            encoder(patch_input=torch.from_numpy(np.array(patches[part])).to(network.device)[:, None])

        queries = {"encoder": [block.self_attn.q_proj for block in encoder.layers]}
        return Pass({"encoder": Stack(encoder.layers, None)}, forward, queries)

    def _forecast(self, windows: Windows, levels: tuple[float, ...], samples: int, seeds: list[int]) -> np.ndarray:
        self.network.eval()
        history, blocks = windows.context.astype(np.float64), []
        for _ in range(0, windows.horizon, self.prediction_length):
            scaled, _, loc, scale = self._scaled(history)
            patches = self._patches(scaled)
            parts = [self._quantiles(patches[i : i + self.batch], levels) for i in range(0, len(patches), self.batch)]
            block = np.concatenate(parts) * scale[:, None, None] + loc[:, None, None]  # [W, Q, P]
            blocks.append(block)
            history = np.concatenate((history, block[:, levels.index(0.5)]), axis=1)
        return np.concatenate(blocks, axis=2)[:, :, : windows.horizon]

    def _quantiles(
        self, patches: Float[np.ndarray, "window token patch"], levels: tuple[float, ...]
    ) -> Float[np.ndarray, "window quantile horizon"]:
        """Quantiles in scaled units, of the head's distribution; a squared-error head's point at every level."""
        import torch
        from scipy import special

        network = self.network
        with torch.inference_mode():
            encoded = network.model.encoder(patch_input=torch.from_numpy(patches).to(network.device)[:, None])
            answer = network.head(encoded.last_hidden_state)
        if not network.distribution_output:
            point = answer[:, None, :, 0].double().cpu().numpy()
            return np.repeat(point, len(levels), axis=1)
        *df, loc, scale = (part[:, None, :, 0].double().cpu().numpy() for part in answer)  # [W, 1, P]
        chances = np.array(levels)[:, None]
        standard = special.stdtrit(df[0], chances) if df else special.ndtri(chances)
        quantiles: np.ndarray = loc + scale * standard
        return quantiles

    def _scaled(
        self, context: Float[np.ndarray, "window context"]
    ) -> tuple[Float[np.ndarray, "window step"], Bool[np.ndarray, "window step"], np.ndarray, np.ndarray]:
        """The model's context, scaled, 0 where missing (float32), what of it is observed, and loc and scale [W].

        In float64: the package's std scaler adds 1e-5 to the variance, so dividing huge values first would not do.
        """
        import torch

        steps = self.max_context
        values = context[:, -steps:].astype(np.float64)
        values = np.pad(values, ((0, 0), (steps - values.shape[1], 0)), constant_values=np.nan)
        observed = ~np.isnan(values)
        filled = torch.from_numpy(np.where(observed, values, 0.0))[:, :, None]
        scaled, loc, scale = self.network.model.scaler(filled, torch.from_numpy(observed)[:, :, None])
        kept = np.where(observed, scaled[:, :, 0].numpy(), 0.0).astype(np.float32)
        return kept, observed, loc[:, 0, 0].numpy(), scale[:, 0, 0].numpy()

    def _patches(self, steps: np.ndarray) -> np.ndarray:
        """Patches [W, T, patch] of a context [W, step]; the first steps that fill no patch are left out."""
        patchifier = self.network.model.patchifier
        kept = steps[:, patchifier.sequence_start :]
        found = np.lib.stride_tricks.sliding_window_view(kept, patchifier.patch_length, axis=1)
        return found[:, :: patchifier.patch_stride].copy()


def _attentions(network: Any) -> Iterator[AttentionLayer]:
    resize = narrow.resizer(PARTS, "head_dim")
    for layer, block in enumerate(network.model.encoder.layers, start=1):
        of = block.self_attn
        heads = of.num_heads
        yield AttentionLayer("encoder", layer, "self", of, heads, heads, of.scaling, True, resize, PARTS)


def _unusable(config: Mapping[str, Any]) -> str | None:
    """What keeps a config from being used as a model of one real-valued channel, or None."""
    if config.get("loss", "mse") != "mse" and config.get("distribution_output", HEADS[0]) not in HEADS:
        return f"got distribution_output {config['distribution_output']!r}, expected one of {list(HEADS)}"
    channels = config.get("num_input_channels", 1)
    apart = {key: config.get(key, value) for key, value in SHARED.items() if config.get(key, value) != value}
    if channels != 1 and apart:
        return f"got {apart} with {channels} channels, expected channels that share all weights"
    return None

"""PatchTST-FM r1 (Wen et al. 2026) of IBM's granite-tsfm: a masked encoder of patches that forecasts quantiles.

We wrote the network: the package declares versions of torch that exclude ours. Names, shapes and arithmetic are the
package's, so its checkpoints load.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self, cast

import numpy as np
from jaxtyping import Bool, Float, Float32, Float64

from tsfmscope.models.common import checkpoint_folder
from tsfmscope.models.common.attention import PARTS, AttentionLayer, layers_of_blocks
from tsfmscope.models.common.capture import Pass, Stack
from tsfmscope.models.common.own_checkpoint import Count, Release, SavedConfig, Share
from tsfmscope.models.common.scale import level_weights, observed_moments
from tsfmscope.models.facts import APACHE, Package, Released
from tsfmscope.models.own_network import OwnNetwork
from tsfmscope.models.types import ForecastGraph, PackageForecast, TokenKind, Tokens
from tsfmscope.series.types import Windows

if TYPE_CHECKING:
    import torch

    from tsfmscope.models.patchtst_fm_network import PatchTSTFMNetwork


# Standard deviations up to this count as 1, as in the package.
LEAST_SCALE = 1e-5
# Largest scaled forecast. The next step, sinh, would overflow float64 above 710; float32 overflows before.
LARGEST_SCALED = 200.0
# Fields of Scaled that the network reads.
INPUTS = ("values", "observed", "attended")
# Values of r1, for which the network here is written; later versions have other ones.
FIXED = {
    "norm_first": True, "qkv_bias": True, "prehead_norm": False, "block_type": "transformer", "is_causal": False,
    "mlp_type": "mlp", "patch_stride": None, "patch_loss_windowing": None,
}  # fmt: skip
# The package's name of the projections of queries, keys and values, which are one matrix there.
JOINT = "qkv"
JOINED = ("q_proj", "k_proj", "v_proj")


def quantile_levels(count: int) -> tuple[float, ...]:
    """Return the levels of a model with this number of quantiles, as PatchTSTFMConfig computes them."""
    if count % 9 == 0:
        return tuple(n / (count + 1) for n in range(1, count + 1))
    return (0.01, *(n / (count - 1) for n in range(1, count - 1)), 0.99)


class Config(SavedConfig):
    """Keys of PatchTSTFMConfig with its defaults; its blocks have dropout 0.1, which is no key there."""

    context_length: Count
    d_patch: Count
    d_model: Count
    n_head: Count
    n_layer: Count
    prediction_length: Count = 64
    pretrain_mask_ratio: Share = 0.4
    pretrain_mask_cont: Count = 8
    num_quantile: Count = 99
    dropout: Share = 0.1

    def find_problem(self) -> str | None:
        """Return why a config cannot be used, or None."""
        if self.d_model % self.n_head:
            return f"d_model: got {self.d_model}, expected a multiple of n_head {self.n_head}"
        steps, size, shortest = self.context_length, self.d_patch, shortest_forecast(dict(self))
        if steps % size or steps < shortest + size:
            return (
                f"context_length: got {steps}, expected a multiple of d_patch {size} from {shortest + size}, since "
                f"every forecast takes {shortest} of its steps (see pretrain_mask_cont)"
            )
        levels = quantile_levels(self.num_quantile)
        if list(levels) != sorted(set(levels)):
            return f"num_quantile: got {self.num_quantile}, expected 9, 99 or another number whose levels ascend"
        return None


def shortest_forecast(config: Mapping[str, Any]) -> int:
    """Return the number of steps that the package always forecasts; shorter forecasts are its first steps."""
    return int(config["d_patch"] * max(config["pretrain_mask_cont"], 2))


class Scaled(NamedTuple):
    """Patches of a context and of the steps to forecast, and how the context was scaled.

    values: asinh((step - loc) / scale), 0 where a step is unknown. observed: 1 where a step was observed and is not
    masked, else 0. attended: patches that are not padding; the others are read by no patch. loc, scale: in the data's
    units.
    """

    values: Float32[np.ndarray, "window token patch"]
    observed: Float32[np.ndarray, "window token patch"]
    attended: Bool[np.ndarray, "window token"]
    loc: Float64[np.ndarray, " window"]
    scale: Float64[np.ndarray, " window"]

    def unscale(self, values: Float[np.ndarray, "window quantile step"]) -> Float64[np.ndarray, "window quantile step"]:
        """Return scaled values in the data's units."""
        bounded = np.clip(values.astype(np.float64), -LARGEST_SCALED, LARGEST_SCALED)
        return np.asarray(np.sinh(bounded) * self.scale[:, None, None] + self.loc[:, None, None])


def scale_and_cut(
    context: Float[np.ndarray, "window context"],
    ahead: int,
    *,
    longest: int,
    size: int,
    hidden: np.ndarray | None = None,
) -> Scaled:
    """Return the patches of contexts and of `ahead` masked steps after them, at most `longest` steps together.

    A missing step is unknown, as in the package. Steps before the first observed one are padding: the package gets the
    series without them. A patch is padding if more than 0.9 of its steps are. Patches that are padding in every
    context of this length are left out, as the package does.
    hidden: context steps [W, C] that are masked too, and that loc and scale do not read.
    """
    kept = longest - ahead
    values = context[:, -kept:].astype(np.float64)
    is_padding = np.logical_and.accumulate(np.isnan(values), axis=1)
    observed = ~np.isnan(values) if hidden is None else ~np.isnan(values) & ~hidden[:, -kept:]
    loc, spread = observed_moments(values, observed)
    scale = np.where(spread > LEAST_SCALE, spread, 1.0)
    scaled = np.arcsinh((np.where(observed, values, loc[:, None]) - loc[:, None]) / scale[:, None])
    left = -(values.shape[1] + ahead) % size
    # Padding first, so that all patches are whole; the package cuts from the start of the longest window.
    parts = (np.pad(scaled, ((0, 0), (left, ahead))), np.pad(observed, ((0, 0), (left, ahead))))
    is_padding = np.pad(np.pad(is_padding, ((0, 0), (left, 0)), constant_values=True), ((0, 0), (0, ahead)))
    patches, masks, padding = (part.reshape(len(part), -1, size) for part in (*parts, is_padding))
    attended = 10 * padding.sum(axis=-1) <= 9 * size
    return Scaled(patches.astype(np.float32), masks.astype(np.float32), attended, loc, scale)


class PatchTSTFM(OwnNetwork):
    """PatchTST-FM models of version r1.

    Rows of the encoder: one per patch of the context and of the forecast. Context and forecast share a window of
    `context_length` steps, so a longer forecast leaves a shorter context. The package forecasts at least
    `pretrain_mask_cont` patches; patches without a context step are of kind MASK. A missing step is 0 after scaling
    and marked as unknown. A context patch without an observed step is PADDING; it is attended to unless it lies before
    the first observed step. A gap that crosses the first step of the window counts as such padding here; the package
    reads the whole series, so it counts the gap as unknown and attends to it. The encoder has no final norm: the last
    state is that of the last block.

    Up to half a window is forecast in one forward pass, as in the package. A longer horizon takes several passes, which
    append the median to the context. The package forecasts up to a whole window at once, from hardly any context, and
    fails beyond it, so forecasts of more than half a window differ from the package's.

    States are computed from values that were scaled in float64, in the package in float32. The package forecasts NaN
    for a series without a value; here its mean is 0 and its scale 1.
    """

    name: ClassVar[str] = "patchtst-fm"
    released: ClassVar[Released] = Released(
        # ibm-research/patchtst-fm-r1 holds other weights, under cc-by-nc-sa-4.0.
        ("ibm-granite/granite-timeseries-patchtst-fm-r1",),
        APACHE,
        "github.com/unit8co/darts, darts/models/forecasting/patchtst_fm_model.py",
    )
    package: ClassVar[Package | None] = Package(
        "granite-tsfm",
        "tsfm_public.models.patchtst_fm:PatchTSTFMForPrediction",
        has_our_network=False,
        network="tsfm_public.models.patchtst_fm.modeling_patchtst_fm:PatchTSTFMForPrediction",
        inner="backbone",
    )
    architectures: ClassVar[tuple[str, ...]] = ("PatchTSTFMForPrediction", "PatchTSTFMForPretraining")
    example: ClassVar[Mapping[str, Any]] = {
        "context_length": 72, "d_patch": 8, "d_model": 16, "n_head": 2, "n_layer": 3, "num_quantile": 9,
        "pretrain_mask_cont": 2, "dropout": 0.0,
    }  # fmt: skip
    stacks: ClassVar[tuple[str, ...]] = ("encoder",)
    mlp: ClassVar[Mapping[str, str]] = {"mlp.layers.0": "mlp_in", "mlp.layers.4": "mlp_out"}
    final_norm: ClassVar[bool] = False
    direct_quantiles: ClassVar[bool] = True
    output_modules: ClassVar[tuple[str, ...]] = ("out_layer",)
    plain_attention: ClassVar[bool] = True
    deviation_floor: ClassVar[float] = LEAST_SCALE
    release: ClassVar[Release] = Release(Config, FIXED, "r1", "backbone.", "patchtst_fm")
    network: PatchTSTFMNetwork

    @classmethod
    def make_network(cls, config: Mapping[str, Any]) -> PatchTSTFMNetwork:
        """Return a network with weights drawn as torch draws those of new layers (as in the package)."""
        from tsfmscope.models.patchtst_fm_network import PatchTSTFMNetwork

        return PatchTSTFMNetwork(config)

    @classmethod
    def load(cls, folder: Path, *, device: str = "cpu") -> Self:
        """Load a released or saved checkpoint; ModelError names the file that is wrong."""
        folder = Path(folder)
        model = super().load(folder, device=device)
        saved, levels = checkpoint_folder.read_config(folder, cls.name), list(model.levels)
        if saved.get("quantile_levels", levels) != levels:
            raise checkpoint_folder.broken_checkpoint(
                f"{folder / 'config.json'}: got quantile_levels {saved['quantile_levels']!s:.60}, expected those of "
                f"num_quantile {model.config['num_quantile']}"
            )
        return model

    def released_weights(self) -> dict[str, torch.Tensor]:
        """Return the network's weights, with queries, keys and values as one matrix where all have their full width."""
        import torch
        from torch import nn

        state = self.network.state_dict()
        for number, block in enumerate(self.network.layers):
            parts = [getattr(block.attn, name) for name in JOINED]
            if not all(isinstance(part, nn.Linear) and part.out_features == part.in_features for part in parts):
                continue
            path = f"blocks.{number}.attn."
            for name in JOINED:
                for kind in ("weight", "bias"):
                    state.pop(f"{path}{name}.{kind}", None)
            # A compressed layer may have lost a bias, whose effect its other weights then contain.
            biases = [torch.zeros_like(part.weight[:, 0]) if part.bias is None else part.bias for part in parts]
            state[f"{path}{JOINT}.weight"] = torch.cat([part.weight for part in parts])
            state[f"{path}{JOINT}.bias"] = torch.cat(biases)
        return state

    @staticmethod
    def to_own_weights(weights: dict[str, torch.Tensor], network: Any) -> dict[str, torch.Tensor]:
        """Return a file's weights, without the prefix, by the network's names."""
        own_weights, own_names = {}, set(network.state_dict())
        for name, value in weights.items():
            path, _, kind = name.rpartition(f".{JOINT}.")
            if not path or len(value) % len(JOINED):
                own_weights[name] = value
                continue
            for part, rows in zip(JOINED, value.chunk(len(JOINED)), strict=True):
                own = f"{path}.{part}.{kind}"
                if own in own_names or kind != "bias" or bool(rows.any()):
                    own_weights[own] = rows
        return own_weights

    @property
    def blocks(self) -> Mapping[str, Sequence[Any]]:
        """Blocks of the encoder."""
        return {"encoder": self.network.layers}

    @classmethod
    def attention_layers(cls, network: Any) -> Iterator[AttentionLayer]:
        """Yield self-attention of every block; queries and keys are neither rotated nor normed."""
        return layers_of_blocks("encoder", network.layers, "attn", PARTS | {"o": "proj"})

    @property
    def levels(self) -> tuple[float, ...]:
        """Levels of the quantiles that the network predicts, ascending."""
        return quantile_levels(self.config["num_quantile"])

    @property
    def max_context(self) -> int:
        """Number of context steps that are read for a short forecast."""
        return int(self.config["context_length"] - self._ahead(1))

    def rows_per_window(self, context: int, horizon: int) -> Mapping[str, int]:
        """Return the number of patches that have a step of the context and are not padding."""
        cut = self._cut(np.zeros((1, context)), self._ahead(horizon))
        return {"encoder": int((cut.observed.any(axis=-1) & cut.attended).sum())}

    def forecast_graph(self) -> ForecastGraph:
        """Return the forecast of at most half a window, which is one forward pass."""
        from tsfmscope.models.graphs import PatchTSTFMGraph

        window, shortest = self.config["context_length"], shortest_forecast(self.config)
        make = partial(PatchTSTFMGraph, self.network.eval(), (LEAST_SCALE, LARGEST_SCALED), window, shortest)
        return ForecastGraph(make, self.max_context, self._longest, self.levels)

    def forecast_with_package(self, network: Any, windows: Windows, tokens: Tokens) -> PackageForecast:
        """Return the quantiles of granite-tsfm's class."""
        import torch

        # A short series is passed from its first value on.
        first = (~np.isnan(windows.context)).argmax(axis=1)
        past = [torch.from_numpy(row[start:]) for row, start in zip(windows.context, first, strict=True)]
        output = network(past, prediction_length=windows.horizon)
        return PackageForecast(torch.stack(list(output.quantile_outputs))[..., 0].numpy(), self.levels)

    def loss(self, context: torch.Tensor, future: torch.Tensor) -> torch.Tensor:
        """Return the package's loss of reconstructed steps, in scaled units.

        Equation: mean over windows of the sum over quantiles / sqrt(Q) of the mean over masked observed steps of
        2 |(x - q)([x <= q] - level)|.
        Source: PatchTSTFMForPretraining of granite-tsfm.
        Masks: the future, and runs of `pretrain_mask_cont` patches of the context. The package contains no code that
        draws masks. Here each window draws a share of its context from 0 to `pretrain_mask_ratio`, with torch's
        generator. ValueError where the future leaves no context.
        """
        import torch

        steps = future.shape[1]
        if steps > self._longest:
            raise ValueError(f"future: got {steps} steps, expected at most {self._longest}, half of context_length")
        past, later, ahead = context.cpu().numpy(), future.cpu().numpy(), self._ahead(steps)
        past = past[:, -(self.config["context_length"] - ahead) :].astype(np.float64)
        hidden = self._draw_masks(past)
        cut, device = self._cut(past, ahead, hidden), self.network.device
        predicted = self.network.quantiles(self.network(*self._on_device(*cut[:3]))).flatten(2)  # [B, Q, T * P]
        width = past.shape[1] + ahead
        predicted = predicted[:, :, -width:][:, :, : past.shape[1] + steps]
        steps_masked = np.concatenate((np.where(hidden, past, np.nan), later.astype(np.float64)), axis=1)
        scaled = np.arcsinh((steps_masked - cut.loc[:, None]) / cut.scale[:, None]).astype(np.float32)
        target = torch.from_numpy(scaled).to(device)[:, None]
        counted = ~target.isnan()
        levels = torch.tensor(self.levels, device=device)[:, None]
        errors = torch.where(counted, target, 0.0) - predicted
        pinball = 2 * torch.maximum(levels * errors, (levels - 1) * errors) * counted
        by_level = pinball.sum(dim=2) / counted.sum(dim=2).clamp_min(1)  # [B, Q]
        return cast("torch.Tensor", by_level.sum(dim=1).mean() / len(self.levels) ** 0.5)

    def _draw_masks(self, past: Float[np.ndarray, "window context"]) -> np.ndarray:
        """Return which context steps are masked, [W, C]; none in a window of which nothing else was observed."""
        import torch

        run, size = self.config["pretrain_mask_cont"], self.config["d_patch"]
        patches = -(-past.shape[1] // size)
        share = torch.rand(len(past), 1) * self.config["pretrain_mask_ratio"]
        # A patch is masked unless none of the `run` patches up to it begins a run.
        begins = torch.rand(len(past), patches + run - 1) < 1 - (1 - share) ** (1 / run)
        masked = begins.unfold(1, run, 1).any(dim=-1).numpy()
        hidden: np.ndarray = np.repeat(masked, size, axis=1)[:, -past.shape[1] :]
        has_rest: np.ndarray = (~np.isnan(past) & ~hidden).any(axis=1, keepdims=True)
        return np.asarray(hidden & has_rest)

    def _tokenize(self, windows: Windows) -> Tokens:
        ahead = self._ahead(windows.horizon)
        cut = self._cut(windows.context, ahead)
        kinds = np.where(cut.observed.any(axis=-1) & cut.attended, TokenKind.OBSERVATION, TokenKind.PADDING)
        # Patches of the forecast alone.
        kinds[:, kinds.shape[1] - ahead // self.config["d_patch"] :] = TokenKind.MASK
        arrays, kinds = dict(zip(INPUTS, cut[:3], strict=True)), kinds.astype(np.int8)
        return Tokens(arrays, {"encoder": kinds}, {}, windows.series, windows.origin)

    def _pass(self, tokens: Tokens) -> Pass:
        network = self.network.eval()

        def forward(part: slice) -> None:
            network(*self._on_device(*(tokens.arrays[name][part] for name in INPUTS)))

        queries = {"encoder": [block.attn.q_proj for block in network.layers]}
        return Pass({"encoder": Stack(network.layers, None)}, forward, queries)

    def _forecast(self, windows: Windows, levels: tuple[float, ...], samples: int, seeds: list[int]) -> np.ndarray:
        median = level_weights(self.levels, (0.5,))
        values = self._forecast_in_parts(windows, self._predict, lambda part: np.einsum("wqh,ql->wh", part, median))
        return np.asarray(np.einsum("wqh,ql->wlh", values, level_weights(self.levels, levels)))

    def _predict(
        self, context: Float[np.ndarray, "window step"], remaining: int
    ) -> Float[np.ndarray, "window quantile horizon"]:
        """Return quantiles of at most `remaining` steps after a context by one forward pass, in the data's units."""
        network, steps = self.network, min(remaining, self._longest)
        ahead = self._ahead(steps)
        cut = self._cut(context, ahead)

        def run(*inputs: torch.Tensor) -> torch.Tensor:
            return network.quantiles(network(*inputs)).flatten(2)[:, :, -ahead:][:, :, :steps]

        return cut.unscale(self._run_in_batches(run, *cut[:3]))

    @property
    def _longest(self) -> int:
        """Number of steps that one forward pass forecasts at most."""
        return max(int(self.config["context_length"]) // 2, shortest_forecast(self.config))

    def _ahead(self, horizon: int) -> int:
        """Return the number of masked steps after the context."""
        return max(min(horizon, self._longest), shortest_forecast(self.config))

    def _cut(self, context: np.ndarray, ahead: int, hidden: np.ndarray | None = None) -> Scaled:
        longest, size = self.config["context_length"], self.config["d_patch"]
        return scale_and_cut(context, ahead, longest=longest, size=size, hidden=hidden)

"""Toto 2.0 (Khwaja et al. 2026) of Datadog: a unit-scaled decoder of patches with time and variate layers.

We wrote the network: the package toto-2 requires Python 3.12. Names, shapes and arithmetic are the package's, so its
checkpoints load.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Float32, Float64

from tsfmscope.errors import ModelError
from tsfmscope.models.common import checkpoint_folder, own_checkpoint
from tsfmscope.models.common.attention import AttentionLayer
from tsfmscope.models.common.capture import Pass, Stack
from tsfmscope.models.common.own_checkpoint import (
    Count,
    CountOrNone,
    Positive,
    Release,
    SavedConfig,
    Switch,
    SwitchOrNone,
)
from tsfmscope.models.common.scale import carry_forward, clip_float32, level_weights
from tsfmscope.models.facts import APACHE, Package, Released, page
from tsfmscope.models.own_network import OwnNetwork
from tsfmscope.models.types import ForecastGraph, TokenKind, Tokens
from tsfmscope.series.types import Windows

if TYPE_CHECKING:
    import torch

    from tsfmscope.models.toto_2_network import Block, Toto2Network

# Values for which the network here is written; the package has no other ones either.
FIXED = {"dropout_p": 0.0, "num_output_patches": 1, "pre_norm": True}
QKV = ("q_proj", "k_proj", "v_proj")
# The package's name of one matrix -> ours of its parts, from top to bottom.
JOINED = {"attn.in_proj": tuple(f"attn.{name}" for name in QKV), "ffn.fc1": ("ffn.fc1_value", "ffn.fc1_gate")}
# Least standard deviation, as in the package.
LEAST_SCALE = 1e-6
# Largest scaled forecast. The next step is sinh, which overflows float32 above 89.
LARGEST_SCALED = 80.0
# Most steps of context and horizon of a graph; the network has no limit. The first is our choice. Of a horizon longer
# than about 1,000 steps, the package advises to decode blocks of 768 (its README), which is several passes.
LONGEST = (4096, 768)


class Config(SavedConfig):
    """Arguments of the package's Toto2ModelConfig. None stands for a value that other keys decide, as there."""

    patch_size: Count
    d_model: Count
    num_heads: Count
    num_layers: Count
    layer_group_size: Count
    num_variate_layers_per_group: Any
    variate_layer_first: Switch
    residual_attn_ratio: Positive
    d_ff: CountOrNone = None
    qk_dim: CountOrNone = None
    v_dim: CountOrNone = None
    num_groups: CountOrNone = None
    qk_norm_include_weight: SwitchOrNone = None
    attn_bias: Switch = False
    mlp_bias: Switch = False
    qk_norm: Switch = True
    norm_include_weight: Switch = False
    per_dim_scale: Switch = False
    use_xpos: Switch = False
    norm_eps: Positive = 5e-5
    residual_mult: Positive = 1.0

    def find_problem(self) -> str | None:
        """Fill in derived values as Toto2ModelConfig does. Return why a config cannot be used, or None."""
        width, heads, blocks, size = self.d_model, self.num_heads, self.num_layers, self.layer_group_size
        if width % heads:
            return f"d_model: got {width}, expected a multiple of num_heads {heads}"
        self.d_ff = self.d_ff or (8 * width // 3 + 7) // 8 * 8
        self.qk_dim = self.qk_dim or width // heads
        self.v_dim = self.v_dim or self.qk_dim
        self.num_groups = self.num_groups or heads
        if self.qk_norm_include_weight is None:
            self.qk_norm_include_weight = self.norm_include_weight
        count = self.num_variate_layers_per_group
        if type(count) is not int or not 0 <= count <= size:
            expected = f"a whole number from 0 to layer_group_size {size}"
            return f"num_variate_layers_per_group: got {count!r}, expected {expected}"
        if blocks % size:
            return f"num_layers: got {blocks}, expected a multiple of layer_group_size {size}"
        if heads % self.num_groups:
            return f"num_groups: got {self.num_groups}, expected a divisor of {heads} heads"
        if self.qk_dim % 4:
            return f"qk_dim: got {self.qk_dim}, expected a multiple of 4: pairs of its half are rotated"
        return None


def _join(network: Toto2Network) -> dict[str, torch.Tensor]:
    """Return the network's weights, with the parts of a matrix as one where all of them are whole."""
    import torch
    from torch import nn

    state = network.state_dict()
    for path, block in _blocks(network):
        for name, parts in JOINED.items():
            modules = [module for part in parts if isinstance(module := block.get_submodule(part), nn.Linear)]
            if [module.out_features for module in modules] != _rows(block)[name]:
                continue
            weights: list[torch.Tensor] = [module.weight for module in modules]
            for part in parts:
                for kind in ("weight", "bias"):
                    state.pop(f"{path}{part}.{kind}", None)
            state[f"{path}{name}.weight"] = torch.cat(weights)
            if any(module.bias is not None for module in modules):
                biases: list[torch.Tensor] = [
                    torch.zeros_like(module.weight[:, 0]) if module.bias is None else module.bias for module in modules
                ]
                # Biases of q, k and v are held times the factor of their input.
                factor = block.attn.in_scale if name == "attn.in_proj" else 1.0
                state[f"{path}{name}.bias"] = torch.cat(biases) / factor
    return state


def _blocks(network: Toto2Network) -> Iterator[tuple[str, Block]]:
    """Yield the prefix of the names of a block's weights, and the block."""
    for number, block in enumerate(network.blocks):
        yield f"transformer.layers.{number}.", block


def _rows(block: Block) -> dict[str, list[int]]:
    """Return the numbers of rows of the parts of a joined matrix, at the widths of the release."""
    attn, ffn = block.attn, block.ffn
    keys = [attn.heads * attn.key_width, attn.groups * attn.key_width, attn.groups * attn.value_width]
    return {"attn.in_proj": keys, "ffn.fc1": [ffn.inner] * 2}


class Scaled(NamedTuple):
    """Patches of contexts and of the steps to forecast, and the scale of each.

    values: asinh((step - loc) / scale), 0 where a step is unknown. unknown: 1 where a step is missing or to be
    forecast, else 0. attended: False for a context patch without an observed step. observed: False where a context
    patch has no observed step of its own. loc, scale: of the steps up to the end of each patch, in the data's units.
    """

    values: Float32[np.ndarray, "window token patch"]
    unknown: Float32[np.ndarray, "window token patch"]
    attended: Bool[np.ndarray, "window token"]
    observed: Bool[np.ndarray, "window token"]
    loc: Float64[np.ndarray, "window token"]
    scale: Float64[np.ndarray, "window token"]

    def arrays(self) -> dict[str, np.ndarray]:
        """Return what the network reads."""
        return {"values": self.values, "unknown": self.unknown, "attended": self.attended}

    @staticmethod
    def of(arrays: Mapping[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the arguments of the network."""
        return arrays["values"], arrays["unknown"], arrays["attended"]

    def unscale(
        self, values: Float[np.ndarray, "window token patch quantile"]
    ) -> Float64[np.ndarray, "window quantile step"]:
        """Return ascending quantiles of the last patches in the data's units, with the scale of the whole context.

        values: scaled quantiles of the patches after the last tokens.
        """
        bounded = np.clip(values.astype(np.float64), -LARGEST_SCALED, LARGEST_SCALED)
        loc, scale = (part[:, -1:, None, None] for part in (self.loc, self.scale))
        steps = np.sort(np.sinh(bounded) * scale + loc)
        return np.moveaxis(steps.reshape(len(steps), -1, steps.shape[-1]), 2, 1)


def scale_and_cut(context: Float[np.ndarray, "window context"], ahead: int, size: int) -> Scaled:
    """Return the patches of contexts and of `ahead` patches after them.

    The context is padded on the left to whole patches of `size` steps. As in the package, the last patch counts as
    observed: its missing steps are the last value before them, or 0. Sums run in float64.
    """
    values = np.pad(context.astype(np.float64), ((0, 0), (-context.shape[1] % size, 0)), constant_values=np.nan)
    is_observed = ~np.isnan(values)
    own = is_observed.reshape(len(values), -1, size).any(axis=-1)
    values[:, -size:] = np.where(is_observed, values, carry_forward(values))[:, -size:]
    is_observed[:, -size:] = True
    values = np.where(is_observed, values, 0.0)
    loc, scale = (part[:, size - 1 :: size] for part in _running_scale(values, is_observed))
    patches, masks = (part.reshape(len(part), -1, size) for part in (values, is_observed))
    scaled = np.where(masks, np.arcsinh((patches - loc[:, :, None]) / scale[:, :, None]), 0.0)
    after = ((0, 0), (0, ahead))
    return Scaled(
        np.pad(scaled, (*after, (0, 0))).astype(np.float32),
        np.pad(np.logical_not(masks), (*after, (0, 0)), constant_values=True).astype(np.float32),
        np.pad(masks.any(axis=-1), after, constant_values=True),
        np.pad(own, after),
        np.pad(loc, after, mode="edge"),
        np.pad(scale, after, mode="edge"),
    )


def _running_scale(
    values: Float64[np.ndarray, "window step"], is_observed: Bool[np.ndarray, "window step"]
) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and standard deviation (divided by n - 1) of the steps so far, [W, T] each.

    The sum of squares grows by the product of a step's distances to the mean before and after it (Welford 1962).
    Where all steps so far are equal, the mean is their value, without rounding.
    """
    count = is_observed.cumsum(axis=1)
    loc = np.where(is_observed, values, 0.0).cumsum(axis=1) / np.maximum(count, 1)
    low, high = (
        of.accumulate(np.where(is_observed, values, edge), axis=1)
        for of, edge in ((np.minimum, np.inf), (np.maximum, -np.inf))
    )
    loc = np.where(low == high, low, loc)
    before = np.pad(loc[:, :-1], ((0, 0), (1, 0)))
    squares = np.where(is_observed, (values - before) * (values - loc), 0.0).cumsum(axis=1)
    scale = np.sqrt(np.maximum(squares, 0.0) / np.maximum(count - 1, 1))
    return loc, np.maximum(scale, LEAST_SCALE)


class Toto2(OwnNetwork):
    """Toto 2.0 models.

    Rows of the decoder: one per patch of the context, and one per patch of the horizon but the last (MASK), since each
    row forecasts the patch after it. A context patch without an observed step is PADDING; only such patches read it.
    The package counts the last patch as observed, with missing steps filled as its GluonTS predictor fills them. The
    whole horizon is one forward pass, as in the package's benchmarks; its block decoding is not here.

    Every window is a group of its own. Attention of a variate layer then weighs a single series, so its W_Q and W_K
    have no effect and get no gradient. Time attention is rotary. Weights have variance 1: see `network`.

    Values are scaled in float64; the package rounds mean and scale to float32. Forecasts are those of the package's
    method `forecast`. Its GluonTS predictor, by default, also caps forecasts (`quantile_real_cap_k`) and scales the
    first patches with later steps while they have fewer than 8 observed ones (`scaler_fallback_min_obs`). So where the
    first patch has 1 to 7 steps (context modulo patch size), the predictor's forecasts differ from these.
    """

    name = "toto-2"
    released = Released(
        tuple(f"Datadog/Toto-2.0-{size}" for size in ("4m", "22m", "313m", "1B", "2.5B")),
        APACHE,
        page("Datadog/Toto-2.0-2.5B"),
    )
    package = Package("toto-2", "toto2:Toto2Model", has_our_network=False)
    config_keys = ("layer_group_size", "num_variate_layers_per_group")
    example: ClassVar[Mapping[str, Any]] = {
        "patch_size": 8, "d_model": 16, "num_heads": 2, "num_layers": 4, "layer_group_size": 2,
        "num_variate_layers_per_group": 1, "variate_layer_first": False, "residual_attn_ratio": 2.0, "d_ff":
        24, "attn_bias": True, "qk_norm": False, "per_dim_scale": True, "use_xpos": True,
    }  # fmt: skip
    release = Release(Config, FIXED, "toto-2 2.0.0")
    stacks = ("decoder",)
    mlp: ClassVar[Mapping[str, str]] = {"ffn.fc1_value": "mlp_in", "ffn.fc1_gate": "mlp_gate", "ffn.fc2": "mlp_out"}
    direct_quantiles = True
    deviation_floor = LEAST_SCALE
    output_modules = ("output_head.param_projection.proj",)
    inert_projections = frozenset((("decoder", "group", "q"), ("decoder", "group", "k")))
    config: dict[str, Any]
    network: Toto2Network

    @classmethod
    def make_network(cls, config: Mapping[str, Any]) -> Toto2Network:
        """Return a network with weights drawn as in the package, from torch's generator."""
        from tsfmscope.models.toto_2_network import Toto2Network

        return Toto2Network(config).draw_weights()

    @classmethod
    def read_saved_config(cls, folder: Path) -> tuple[dict[str, Any], Release]:
        """Return config.json and the release; ModelError if it is of another family."""
        saved = checkpoint_folder.read_config(folder, cls.name)
        if saved.get("model_type", cls.name) != cls.name or "layer_group_size" not in saved:
            got = f"{folder / 'config.json'}: got model_type {saved.get('model_type')!r}"
            problem = f"{got}, expected {cls.name!r} and layer_group_size"
            raise ModelError(checkpoint_folder.of_other_family(problem, cls.name))
        return saved, cls.release

    @staticmethod
    def to_own_weights(weights: dict[str, torch.Tensor], network: Any) -> dict[str, torch.Tensor]:
        """Return a file's weights in float32, by the network's names."""
        sizes = _rows(network.blocks[0])
        result, own_names = {name: value.float() for name, value in weights.items()}, set(network.state_dict())
        for path, block in _blocks(network):
            for name, parts in JOINED.items():
                for kind in ("weight", "bias"):
                    joined = result.get(f"{path}{name}.{kind}")
                    if joined is None or len(joined) != sum(sizes[name]):
                        continue
                    del result[f"{path}{name}.{kind}"]
                    factor = block.attn.in_scale if (name, kind) == ("attn.in_proj", "bias") else 1.0
                    for part, rows in zip(parts, joined.split(sizes[name]), strict=True):
                        own = f"{path}{part}.{kind}"
                        # A compressed layer may lack a bias; a joined one then has zeros.
                        if own in own_names or kind == "weight" or bool(rows.any()):
                            result[own] = rows * factor
        return result

    def save(self, folder: Path) -> None:
        """Write config.json and model.safetensors, which Toto2Model.from_pretrained reads.

        A model that lost the block `compression` may have gained biases: the config then has `attn_bias`, and the other
        biases are 0.
        """
        import torch

        network, config, state = self.network, dict(self.config), _join(self.network)
        has_bias = any(
            getattr(block.attn, name).bias is not None for block in network.blocks for name in (*QKV, "out_proj")
        )
        if self.compression is None and has_bias:
            config["attn_bias"] = True
            for path, block in _blocks(network):
                inputs = sum(getattr(block.attn, name).out_features for name in QKV)
                for name, rows in (("in_proj", inputs), ("out_proj", config["d_model"])):
                    state.setdefault(f"{path}attn.{name}.bias", torch.zeros(rows))
        own_checkpoint.write(Path(folder), network, {"model_type": self.name, **FIXED, **config}, state)

    @property
    def blocks(self) -> Mapping[str, Sequence[Any]]:
        """Blocks of the decoder."""
        return {"decoder": self.network.blocks}

    @classmethod
    def attention_layers(cls, network: Any) -> Iterator[AttentionLayer]:
        """Yield the attention of every block; keys of time layers are rotated, so their width cannot change."""
        from tsfmscope.models.toto_2_network import attentions

        return attentions(network.blocks)

    @property
    def levels(self) -> tuple[float, ...]:
        """Levels of the quantiles that the network predicts, ascending."""
        from tsfmscope.models.toto_2_network import LEVELS

        return LEVELS

    def rows_per_window(self, context: int, horizon: int) -> Mapping[str, int]:
        """Return the number of context patches; the context is padded on the left to whole patches."""
        return {"decoder": -(-context // self._size)}

    def forecast_graph(self) -> ForecastGraph:
        """Return the forecast of at most LONGEST steps, which is one forward pass."""
        from tsfmscope.models.graphs import Toto2Graph

        network = self.network.eval()
        bounds = LEAST_SCALE, LARGEST_SCALED
        return ForecastGraph(
            lambda context, horizon: Toto2Graph(network, bounds, self._ahead(horizon), context, horizon),
            *LONGEST, self.levels,
        )  # fmt: skip

    def loss(self, context: torch.Tensor, future: torch.Tensor) -> torch.Tensor:
        """Return the quantile loss of the next patch of every row, in scaled units.

        Equation: mean over levels and observed steps of 2 |(x - q)([x <= q] - level)|, for the context's patches but
        the first and for the future's; half of the mean of both. x: asinh of the step, scaled as its row is.
        Deviations: the package has no training code. As in its forecasts, all patches of the future are masked; the
        release also masks runs of patches of the context. Steps after rows without any spread have no weight.
        """
        import torch

        size, steps = self._size, future.shape[1]
        past, later = context.cpu().numpy().astype(np.float64), future.cpu().numpy().astype(np.float64)
        count = -(-steps // size)
        cut, device = scale_and_cut(past, count - 1, size), self.network.device
        outputs = self.network.quantiles(self.network(*self._on_device(*Scaled.of(cut.arrays()))))  # [B, T, P, Q]
        known = np.concatenate((np.pad(past, ((0, 0), (-past.shape[1] % size, 0)), constant_values=np.nan), later), 1)
        known = np.pad(known, ((0, 0), (0, -known.shape[1] % size)), constant_values=np.nan)
        targets = known.reshape(len(known), -1, size)[:, 1:]  # [B, T, P]
        scaled = np.arcsinh((targets - cut.loc[:, :, None]) / cut.scale[:, :, None])
        is_counted = ~np.isnan(targets) & (cut.attended & (cut.scale > LEAST_SCALE))[:, :, None]
        target, weight = self._on_device(clip_float32(np.where(is_counted, scaled, 0.0)), is_counted)
        levels = torch.tensor(self.levels, device=device)
        errors = target[..., None] - outputs
        pinball = 2 * torch.maximum(levels * errors, (levels - 1) * errors).mean(dim=-1) * weight
        parts = [
            part.sum() / counted.sum().clamp_min(1)
            for part, counted in zip(pinball.tensor_split([-count], 1), weight.tensor_split([-count], 1), strict=True)
        ]
        loss: torch.Tensor = torch.stack(parts).mean()
        return loss

    def _tokenize(self, windows: Windows) -> Tokens:
        ahead = self._ahead(windows.horizon)
        cut = scale_and_cut(windows.context, ahead, self._size)
        kinds = np.where(cut.observed, TokenKind.OBSERVATION, TokenKind.PADDING)
        kinds[:, kinds.shape[1] - ahead :] = TokenKind.MASK
        return Tokens(cut.arrays(), {"decoder": kinds.astype(np.int8)}, {}, windows.series, windows.origin)

    def _pass(self, tokens: Tokens) -> Pass:
        network = self.network.eval()

        def forward(part: slice) -> None:
            network(*self._on_device(*(array[part] for array in Scaled.of(tokens.arrays))))

        return Pass({"decoder": Stack(network.blocks, network.transformer.out_norm)}, forward)

    def _forecast(self, windows: Windows, levels: tuple[float, ...], samples: int, seeds: list[int]) -> np.ndarray:
        network, ahead = self.network, self._ahead(windows.horizon)
        cut = scale_and_cut(windows.context, ahead, self._size)

        def run(*inputs: torch.Tensor) -> torch.Tensor:
            return network.quantiles(network(*inputs)[:, -1 - ahead :])

        own = cut.unscale(self._run_in_batches(run, *Scaled.of(cut.arrays())))[:, :, : windows.horizon]
        values: np.ndarray = np.einsum("wqh,ql->wlh", own, level_weights(self.levels, levels))
        return values

    @property
    def _size(self) -> int:
        return int(self.config["patch_size"])

    def _ahead(self, horizon: int) -> int:
        """Return the number of masked patches: the last context patch forecasts the first patch of the horizon."""
        return max(-(-horizon // self._size) - 1, 0)

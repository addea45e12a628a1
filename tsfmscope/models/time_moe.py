"""Time-MoE (Shi et al. 2025): a decoder of single steps with sparse experts and several horizons.

We wrote the code: the released code is on no package index and needs an old transformers. Names, shapes and
arithmetic are the release's, so its checkpoints (Maple728/TimeMoE-50M, -200M) load.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, NamedTuple, cast

import numpy as np
from jaxtyping import Bool, Float32, Float64, Int32
from pydantic import BeforeValidator, Field

from tsfmscope.models.common.attention import PARTS, AttentionLayer, layers_of_blocks
from tsfmscope.models.common.capture import Pass, Stack
from tsfmscope.models.common.own_checkpoint import Count, Counts, Release, SavedConfig
from tsfmscope.models.common.scale import HUGE, carry_forward, clip_float32
from tsfmscope.models.facts import APACHE, Released, page
from tsfmscope.models.own_network import OwnNetwork
from tsfmscope.models.types import TokenKind, Tokens
from tsfmscope.series.types import Windows

if TYPE_CHECKING:
    import torch

    from tsfmscope.models.time_moe_network import TimeMoENetwork

# Delta of the Huber loss, as in the released code.
DELTA = 2.0
# Values in every release, for which the network here is written.
FIXED = {
    "input_size": 1, "hidden_act": "silu", "attention_dropout": 0.0, "use_dense": False, "apply_aux_loss": True,
    "tie_word_embeddings": False,
}  # fmt: skip


class Config(SavedConfig):
    """Keys of a release, with the values of the 50M checkpoint's config.json as defaults."""

    hidden_size: Count
    intermediate_size: Count
    num_hidden_layers: Count
    num_attention_heads: Count
    horizon_lengths: Annotated[
        Counts, BeforeValidator(lambda steps: [steps] if isinstance(steps, int) else list(steps))
    ] = Field([1, 8, 32, 64])
    num_experts: Count = 8
    num_experts_per_tok: Count = 2
    max_position_embeddings: Count = 4096
    rope_theta: Any = 10000
    rms_norm_eps: Any = 1e-6
    initializer_range: Any = 0.02
    router_aux_loss_factor: Any = 0.02

    def find_problem(self) -> str | None:
        """Return why a config cannot be used, or None."""
        horizons, width, heads = self.horizon_lengths, self.hidden_size, self.num_attention_heads
        if not horizons or horizons != sorted(set(horizons)):
            return f"horizon_lengths: got {horizons}, expected ascending numbers of steps"
        if width % (2 * heads):
            return f"hidden_size {width} gives {heads} heads no even width, as rotation pairs"
        if self.num_experts_per_tok > self.num_experts:
            return f"num_experts_per_tok: got {self.num_experts_per_tok} of num_experts"
        return None


class Scaled(NamedTuple):
    """Contexts scaled by their own mean and standard deviation, with missing steps filled.

    observed: which steps were observed. start: the first observed step, T where there is none. loc, scale: in
    the data's units.
    """

    values: Float32[np.ndarray, "window token"]
    observed: Bool[np.ndarray, "window token"]
    start: Int32[np.ndarray, " window"]
    loc: Float64[np.ndarray, " window"]
    scale: Float64[np.ndarray, " window"]


class TimeMoE(OwnNetwork):
    """Time-MoE models.

    Rows of the decoder: one row per step of the context. The future is not read; it could not change their
    states.

    A context is scaled by its mean and standard deviation (n - 1), as the release's README does. A context
    that does not vary is only centred, as in the release's training. The release has no missing steps. Here a
    missing step repeats the last observed one and is attended to; its kind is PADDING, since it stands for no
    value. Missing steps before the first observed one are masked. The embedding has no bias and maps 0 to 0,
    so states of layer 0 are all zero where a context is constant.

    The family forecasts points: the Huber loss aims between mean and median, there is no distribution behind
    it, and every quantile is the same number. Horizons are forecast greedily: the longest head that fits
    comes first, and its steps are appended.
    """

    name: ClassVar[str] = "time-moe"
    released: ClassVar[Released] = Released(
        ("Maple728/TimeMoE-50M", "Maple728/TimeMoE-200M"), APACHE, page("Maple728/TimeMoE-50M")
    )
    architectures: ClassVar[tuple[str, ...]] = ("TimeMoeForPrediction",)
    example: ClassVar[Mapping[str, Any]] = {
        "hidden_size": 16, "intermediate_size": 24, "initializer_range": 0.2, "num_attention_heads": 2,
        "num_hidden_layers": 3, "num_experts": 4, "horizon_lengths": [1, 8], "max_position_embeddings": 48,
    }  # fmt: skip
    stacks: ClassVar[tuple[str, ...]] = ("decoder",)
    width_key: ClassVar[str] = "hidden_size"
    direct_quantiles: ClassVar[bool] = True
    output_modules: ClassVar[tuple[str, ...]] = ("lm_heads",)
    zero_states: ClassVar[bool] = True
    # Routers.
    unnamed: ClassVar[frozenset[str]] = frozenset({"ffn_layer.gate", "ffn_layer.shared_expert_gate"})
    release: ClassVar[Release] = Release(Config, FIXED, "every release", model_type="time_moe")
    network: TimeMoENetwork

    @classmethod
    def make_network(cls, config: Mapping[str, Any]) -> TimeMoENetwork:
        """Return a network with weights drawn as in the release, from torch's generator."""
        from tsfmscope.models.time_moe_network import TimeMoENetwork

        return TimeMoENetwork(config).draw_weights(config["initializer_range"])

    @classmethod
    def read_saved_config(cls, folder: Path) -> tuple[dict[str, Any], Release]:
        """Return config.json and the release, in which keys and values have as many heads as queries."""
        saved, release = super().read_saved_config(folder)
        heads = {"num_key_value_heads": saved.get("num_attention_heads")}
        return saved, replace(release, fixed={**release.fixed, **heads})

    def saved_config(self) -> dict[str, Any]:
        """Return config.json, which names the number of heads of keys and values too."""
        return super().saved_config() | {"num_key_value_heads": self.config["num_attention_heads"]}

    @property
    def blocks(self) -> Mapping[str, Sequence[Any]]:
        """Blocks of the decoder."""
        return {"decoder": self.network.blocks}

    @classmethod
    def attention_layers(cls, network: Any) -> Iterator[AttentionLayer]:
        """Yield self-attention of every block; queries and keys are rotated."""
        scale = network.head_width**-0.5
        return layers_of_blocks("decoder", network.blocks, "self_attn", PARTS, scale=scale, plain=False)

    def mlp_paths(self) -> Mapping[str, str]:
        """Return the matrices of every expert, with suffixes `.0`, `.1` and so on, and `.shared`."""
        experts = {f"experts.{number}": str(number) for number in range(self.config["num_experts"])}
        parts = {"gate_proj": "mlp_gate", "up_proj": "mlp_in", "down_proj": "mlp_out"}
        return {
            f"ffn_layer.{expert}.{part}": f"{name}.{suffix}"
            for expert, suffix in (experts | {"shared_expert": "shared"}).items()
            for part, name in parts.items()
        }

    @property
    def max_context(self) -> int:
        """Number of context steps that the model reads, as in training; forecast steps come on top."""
        return int(self.config["max_position_embeddings"])

    def rows_per_window(self, context: int, horizon: int) -> Mapping[str, int]:
        """Return the number of context steps that are read."""
        return {"decoder": min(context, self.max_context)}

    def loss(self, context: torch.Tensor, future: torch.Tensor) -> torch.Tensor:
        """Return the mean Huber loss of all heads at every step plus the loss that balances the experts.

        Source: Shi et al. 2025, eqs. 10 to 12. Steps are scaled by the context alone. The release scales
        context and future together, which a forecast cannot. Missing steps have no weight. The heads' windows
        end with the batch, as in the release.
        """
        import torch

        from tsfmscope.models.time_moe_network import balance

        scaled, device = self._scale_context(context.cpu().numpy()), self.network.device
        known = torch.from_numpy(scaled.observed)
        later = torch.from_numpy((future.cpu().numpy() - scaled.loc[:, None]) / scaled.scale[:, None])
        steps = torch.cat((torch.from_numpy(scaled.values), later.clamp(-HUGE, HUGE).float()), dim=1)
        labels = torch.where(torch.cat((known, torch.ones_like(later, dtype=torch.bool)), dim=1), steps, torch.nan)
        inputs = torch.from_numpy(carry_forward(steps.numpy()))[:, :-1].to(device)
        start = torch.from_numpy(scaled.start).to(device)
        answer = self.network(inputs, start)
        counted = torch.arange(inputs.shape[1], device=device) >= start[:, None]
        target = labels[:, 1:].to(device)
        heads = [_huber_loss(head(answer.states), target, counted) for head in self.network.lm_heads]
        spread = balance(answer.routes, self.config["num_experts_per_tok"], counted)
        return cast("torch.Tensor", torch.stack(heads).mean() + self.config["router_aux_loss_factor"] * spread)

    def _tokenize(self, windows: Windows) -> Tokens:
        scaled = self._scale_context(windows.context)
        kinds = np.where(scaled.observed, TokenKind.OBSERVATION, TokenKind.PADDING).astype(np.int8)
        loc, scale = clip_float32(scaled.loc), clip_float32(scaled.scale)
        arrays = {"values": scaled.values, "start": scaled.start, "loc": loc, "scale": scale}
        return Tokens(arrays, {"decoder": kinds}, {}, windows.series, windows.origin)

    def _pass(self, tokens: Tokens) -> Pass:
        network, arrays = self.network.eval(), tokens.arrays

        def forward(part: slice) -> None:
            network(*self._on_device(arrays["values"][part], arrays["start"][part]))

        return Pass({"decoder": Stack(network.blocks, network.model.norm)}, forward)

    def _forecast(self, windows: Windows, levels: tuple[float, ...], samples: int, seeds: list[int]) -> np.ndarray:

        from tsfmscope.models.time_moe_network import continue_values

        scaled = self._scale_context(windows.context)

        def run(values: torch.Tensor, start: torch.Tensor) -> torch.Tensor:
            return continue_values(self.network, values, start, windows.horizon, self.config["horizon_lengths"])

        point = self._run_in_batches(run, scaled.values, scaled.start)
        point = point * scaled.scale[:, None] + scaled.loc[:, None]
        return np.repeat(point[:, None], len(levels), axis=1)  # [W, Q, H]

    def _scale_context(self, context: np.ndarray) -> Scaled:
        """Return the context's last `max_context` steps, scaled in float64."""
        values = context[:, -self.max_context :].astype(np.float64)
        observed = ~np.isnan(values)
        count = observed.sum(axis=1)
        loc = np.where(observed, values, 0.0).sum(axis=1) / np.maximum(count, 1)
        centred = np.where(observed, values - loc[:, None], 0.0)
        spread = np.sqrt((centred**2).sum(axis=1) / np.maximum(count - 1, 1))
        low, high = (np.where(observed, values, edge) for edge in (np.inf, -np.inf))
        # Compared exactly: rounding of loc gives a constant context a spread above 0.
        varies = low.min(axis=1, initial=np.inf) < high.max(axis=1, initial=-np.inf)
        scale = np.where(varies & (spread > 0), spread, 1.0)
        flat = np.where(varies[:, None], centred / scale[:, None], 0.0)
        steps = carry_forward(np.where(observed, flat, np.nan).astype(np.float32))
        start = np.where(count > 0, observed.argmax(axis=1), values.shape[1]).astype(np.int32)
        return Scaled(steps, observed, start, loc, scale)


def _huber_loss(answer: torch.Tensor, target: torch.Tensor, counted: torch.Tensor) -> torch.Tensor:
    """Return the mean Huber loss of a head's forecasts [B, T, h].

    target [B, T] is the step after each token, NaN where missing. counted [B, T]: tokens that count.
    """
    import torch
    from torch.nn import functional

    length = answer.shape[-1]
    windows = functional.pad(target, (0, length - 1), value=float("nan")).unfold(-1, length, 1)  # [B, T, h]
    known = ~windows.isnan() & counted[..., None]
    losses = functional.huber_loss(answer, torch.where(known, windows, 0.0), reduction="none", delta=DELTA)
    return (losses * known).sum() / known.sum().clamp_min(1)

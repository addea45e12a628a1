"""Lag-Llama's network (Rasul et al. 2024, section 4) with the names and shapes of the released state dict.

Module and parameter names are those of time-series-foundation-models/lag-llama, lag_llama/model/module.py; what they do
is written from that paper and science.md, section 8.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple, cast

import torch
from jaxtyping import Float, Int
from torch import nn
from torch.nn import functional

from tasks.models.attention import AttentionLayer, any_width
from tasks.models.scale import HUGE

EPSILON = 1e-5  # of the RMS norms, in the released code
BASE = 10_000.0  # of the rotary angles, as in Llama
MULTIPLE = 256  # the MLP's width is rounded up to a multiple of this
MINIMUM_SCALE = 1e-10  # of the released code's robust scaler
TIME_FEATURES = (
    6  # gluonts' time_features_from_frequency_str("S"): second, minute, hour, weekday, day of month, of year
)
STATIC_FEATURES = 2  # log1p|loc|, log scale


class StudentT(NamedTuple):
    """Parameters of the next step's distribution, scaled, each [..., T]."""

    df: torch.Tensor
    loc: torch.Tensor
    scale: torch.Tensor


class Standardised(NamedTuple):
    """Windows over their own scale.

    steps: [W, N] scaled; loc, scale: [W], of the values as given; fill: [W], what stands for a missing value;
    static: [W, 2] features.
    """

    steps: torch.Tensor
    loc: torch.Tensor
    scale: torch.Tensor
    fill: torch.Tensor
    static: torch.Tensor

    def apply(self, values: Float[torch.Tensor, "window step"]) -> Float[torch.Tensor, "window step"]:
        """Other values of the same windows over the same scale.

        Clamped at HUGE, beyond which float32 sums of squares overflow: a constant window has a scale of 1e-10.
        """
        filled = torch.where(values.isnan(), self.fill[:, None], values)
        return ((filled - self.loc[:, None]) / self.scale[:, None]).clamp(-HUGE, HUGE)


def standardise(
    values: Float[torch.Tensor, "window step"], factor: Float[torch.Tensor, " window"], missing: str
) -> Standardised:
    """Robust scaling of history and context, NaN where missing; the data are values times factor.

    loc is the median (the lower of two), scale the interquartile range and at least 1e-10 in the data's units; 0 and 1
    where nothing is observed (released code: gluon_utils/scalers/robust_scaler.py). missing: "zero" fills with 0 of the
    data's units, as the release does, "median" with loc.
    """
    median = values.nanmedian(dim=1).values
    low, high = (torch.nanquantile(values, level, dim=1) for level in (0.25, 0.75))
    nothing = median.isnan()
    loc = torch.where(nothing, 0.0, median)
    spread = torch.where(nothing, 1.0 / factor, (high - low).double())
    scale = torch.maximum(spread, MINIMUM_SCALE / factor.double())  # of a factor of 2^127, 0 in float32
    static = torch.stack((torch.log1p((loc * factor).abs()), torch.log(scale * factor)), dim=1).float()
    fill = torch.zeros_like(loc) if missing == "zero" else loc
    normal = scale.clamp_min(torch.finfo(torch.float32).tiny).float()
    found = Standardised(values, loc, normal, fill, static)
    return found._replace(steps=found.apply(values))


def features(
    steps: Float[torch.Tensor, "... step"],
    static: Float[torch.Tensor, "... 2"],
    lags: Int[torch.Tensor, " lag"],
    positions: Int[torch.Tensor, " token"],
) -> Float[torch.Tensor, "... token feature"]:
    """Inputs of the tokens at `positions`: values `lags` before each, log1p|loc|, log scale, six time features of 0."""
    lagged = steps[..., positions[:, None] - lags]  # [..., T, L]
    still = static[..., None, :].expand(*lagged.shape[:-1], -1)
    return torch.cat((lagged, still, lagged.new_zeros(*lagged.shape[:-1], TIME_FEATURES)), dim=-1)


def rotary(
    count: int, width: int, factor: float, device: torch.device
) -> tuple[Float[torch.Tensor, "token head_width"], Float[torch.Tensor, "token head_width"]]:
    """Cosines and sines of positions 0..count - 1 over `factor` (linear scaling), both halves of a head alike."""
    frequencies = BASE ** -(torch.arange(0, width, 2, device=device).float() / width)
    angles = (torch.arange(count, device=device).float() / factor)[:, None] * frequencies
    both = torch.cat((angles, angles), dim=-1)
    return both.cos(), both.sin()


def rotated(heads: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Heads [..., T, d_h] turned by their position: coordinate i is paired with i + d_h / 2."""
    first, second = heads.chunk(2, dim=-1)
    return heads * cos + torch.cat((-second, first), dim=-1) * sin


class RMSNorm(nn.Module):
    """x / sqrt(mean(x^2) + eps) * scale, over the last axis."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(width))

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        return functional.rms_norm(states, self.scale.shape, self.scale, EPSILON)


class Attention(nn.Module):
    """Causal self-attention, rotary, without biases; values may be narrower than keys.

    In the state dict keys and values are one matrix `kv_proj`, keys first, as in the release, wherever they are plain
    Linears of a kind.
    """

    def __init__(self, heads: int, head_width: int) -> None:
        super().__init__()
        width = heads * head_width
        self.heads = heads
        self.q_proj, self.k_proj, self.v_proj, self.c_proj = (nn.Linear(width, width, bias=False) for _ in range(4))
        self.register_state_dict_post_hook(_join)
        self.register_load_state_dict_pre_hook(_split)

    def projected(
        self, states: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Rotated queries and keys, and values, [B, h, T, d_h] each, of states [B, T, d]."""
        query, key, value = (
            part(states).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for part in (self.q_proj, self.k_proj, self.v_proj)
        )
        return rotated(query, cos, sin), rotated(key, cos, sin), value

    def joined(self, heads: torch.Tensor) -> torch.Tensor:
        """Output [B, T, d] of the heads' [B, h, T, d_v]."""
        output: torch.Tensor = self.c_proj(heads.transpose(1, 2).flatten(-2))
        return output

    def forward(self, states: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        return self.joined(functional.scaled_dot_product_attention(*self.projected(states, cos, sin), is_causal=True))


def _joint(attention: Attention) -> list[str]:
    """Which of weight and bias of keys and values stand as one in the state dict."""
    parts = (attention.k_proj, attention.v_proj)
    if any(type(part) is not nn.Linear for part in parts) or len({part.bias is None for part in parts}) == 2:
        return []
    return ["weight"] if parts[0].bias is None else ["weight", "bias"]


def _join(attention: Any, state: dict[str, Any], prefix: str, metadata: Any) -> None:
    for name in _joint(attention):
        key, value = (state.pop(f"{prefix}{part}.{name}") for part in ("k_proj", "v_proj"))
        state[f"{prefix}kv_proj.{name}"] = torch.cat((key, value))


def _split(attention: Any, state: dict[str, Any], prefix: str, *_: Any) -> None:
    rows = attention.k_proj.out_features
    for name in _joint(attention):
        if (joint := state.pop(f"{prefix}kv_proj.{name}", None)) is not None:
            state[f"{prefix}k_proj.{name}"], state[f"{prefix}v_proj.{name}"] = (
                joint[:rows].clone(),
                joint[rows:].clone(),
            )


class MLP(nn.Module):
    """SiLU(x W_1) * (x W_2), then back; its width is 8/3 of the model's, rounded up to a multiple of 256."""

    def __init__(self, width: int) -> None:
        super().__init__()
        inner = -(-int(8 * width / 3) // MULTIPLE) * MULTIPLE
        self.c_fc1 = nn.Linear(width, inner, bias=False)
        self.c_fc2 = nn.Linear(width, inner, bias=False)
        self.c_proj = nn.Linear(inner, width, bias=False)

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        output: torch.Tensor = self.c_proj(functional.silu(self.c_fc1(states)) * self.c_fc2(states))
        return output


class Block(nn.Module):
    """Attention and MLP, each on the normed residual stream and added to it."""

    def __init__(self, heads: int, head_width: int) -> None:
        super().__init__()
        self.rms_1 = RMSNorm(heads * head_width)
        self.attn = Attention(heads, head_width)
        self.rms_2 = RMSNorm(heads * head_width)
        self.mlp = MLP(heads * head_width)

    def forward(self, states: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        states = states + self.attn(self.rms_1(states), cos, sin)
        output: torch.Tensor = states + self.mlp(self.rms_2(states))
        return output


class StudentTHead(nn.Module):
    """One linear map a parameter (df, loc, scale), then gluonts' StudentTOutput.domain_map."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.proj = nn.ModuleList(nn.Linear(width, 1) for _ in StudentT._fields)

    def forward(self, states: torch.Tensor) -> StudentT:
        df, loc, scale = (part(states).squeeze(-1) for part in self.proj)
        least = torch.finfo(scale.dtype).eps
        return StudentT(2.0 + functional.softplus(df), loc, functional.softplus(scale).clamp_min(least))


class Transformer(nn.Module):
    """Input map, blocks and final norm."""

    def __init__(self, *, inputs: int, layers: int, heads: int, head_width: int) -> None:
        super().__init__()
        self.wte = nn.Linear(inputs, heads * head_width)
        self.h = nn.ModuleList(Block(heads, head_width) for _ in range(layers))
        self.ln_f = RMSNorm(heads * head_width)


class LagLlamaNetwork(nn.Module):
    """Inputs [B, T, F] to the distribution of each next step. Weights start as torch's layers do, as in the release."""

    def __init__(self, *, inputs: int, layers: int, heads: int, head_width: int) -> None:
        super().__init__()
        self.head_width = head_width
        self.transformer = Transformer(inputs=inputs, layers=layers, heads=heads, head_width=head_width)
        self.param_proj = StudentTHead(heads * head_width)

    @property
    def blocks(self) -> list[Block]:
        """The blocks, first to last."""
        return cast(list[Block], list(self.transformer.h))

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.transformer.wte.bias.device

    def forward(self, inputs: Float[torch.Tensor, "window token feature"], rope_factor: float = 1.0) -> StudentT:
        cos, sin = rotary(inputs.shape[1], self.head_width, rope_factor, inputs.device)
        states = self.transformer.wte(inputs)
        for block in self.blocks:
            states = block(states, cos, sin)
        return self.head(states)

    def head(self, states: torch.Tensor) -> StudentT:
        """The distribution that the last block's states [..., d] stand for."""
        answer: StudentT = self.param_proj(self.transformer.ln_f(states))
        return answer


def attentions(network: LagLlamaNetwork) -> Iterator[AttentionLayer]:
    """Every block's self-attention; queries and keys are rotated, so that values and output alone make a product."""
    parts = {"q": "q_proj", "k": "k_proj", "v": "v_proj", "o": "c_proj"}
    scale = network.head_width**-0.5
    for layer, block in enumerate(network.blocks, start=1):
        module, heads = block.attn, block.attn.heads
        yield AttentionLayer("decoder", layer, "self", module, heads, heads, scale, False, any_width, parts)

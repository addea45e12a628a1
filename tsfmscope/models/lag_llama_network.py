"""Lag-Llama's network (Rasul et al. 2024, section 4) with the names and shapes of the released state dict.

Module and parameter names are those of time-series-foundation-models/lag-llama, lag_llama/model/module.py.
The code itself is ours, written from that paper and the released shapes.

Sample paths take one pass over a window's context, then one token of every path at a time. The next value of a path is
drawn by inverse CDF from given uniforms. Another batch size therefore changes a path by rounding only.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import nn
from torch.nn import functional

from tsfmscope.models.common.layers import PlacedModule, join_heads, rotate, split_heads
from tsfmscope.models.common.scale import HUGE

# Sample paths computed together: enough to fill matrix products, few enough for the caches.
ROWS = 1024
# Half of the smallest positive uniform; replaces a uniform of 0, whose quantile is infinite.
SMALLEST = 2.0**-54
# Epsilon of the RMS norms, in the released code.
EPSILON = 1e-5
# Base of the rotary angles, as in Llama.
BASE = 10_000.0
# The MLP's width is rounded up to a multiple of this.
MULTIPLE = 256
# Smallest scale of the released code's robust scaler, in the data's units.
MINIMUM_SCALE = 1e-10
# Number of static features: log1p|loc| and log scale.
STATIC_FEATURES = 2


def sample_paths(
    network: LagLlamaNetwork,
    scaled: Standardised,
    lags: torch.Tensor,
    tokens: int,
    calendar: Float[torch.Tensor, "window step 6"],
    uniforms: Float[np.ndarray, "window path horizon"],
    rope_factor: float,
) -> Float[np.ndarray, "window path horizon"]:
    """Return the scaled values of every sample path.

    Each value is drawn given the last `tokens` steps of the context and the path so far.
    calendar: features of these `tokens` steps and of the horizon's steps. uniforms: in [0, 1), one per value.
    loc and scale stay those of the context, as in training. Deviation: the released code estimates them again
    after each sampled step, which it counts as observed. All inputs would then change, so that no keys could
    be cached.
    """
    windows, paths, horizon = uniforms.shape
    before = scaled.steps.shape[1]
    positions = torch.arange(before + horizon, device=lags.device)
    with torch.inference_mode():
        inputs = features(scaled.steps, scaled.static, lags, positions[before - tokens : before], calendar[:, :tokens])
        decoder = PathDecoder(network, inputs, paths, horizon, rope_factor)
        known = scaled.steps.new_empty(windows, paths, before + horizon)
        known[..., :before] = scaled.steps[:, None]
        static = scaled.static[:, None].expand(-1, paths, -1)
        answer = decoder.first
        for step, position in enumerate(positions[before:]):
            known[..., position] = _quantiles_at(answer, uniforms[:, :, step])
            if step + 1 < horizon:
                # All paths of a window share the date.
                own = calendar[:, None, tokens + step, None]  # [W, 1, 1, 6]
                answer = decoder.next(features(known, static, lags, position[None], own)[:, :, 0], step)
    return known[..., before:].double().cpu().numpy()


def _quantiles_at(answer: StudentT, uniforms: Float[np.ndarray, "window path"]) -> torch.Tensor:
    """Return the quantiles [W, S], at the levels `uniforms`, of distributions [W, S] or [W, 1]."""
    from scipy.special import stdtrit

    df, loc, scale = (part.double().cpu().numpy() for part in answer)
    values = loc + scale * stdtrit(df, np.maximum(uniforms, SMALLEST))
    return torch.from_numpy(values).to(answer.loc)


class PathDecoder:
    """Decoder that computes one token of every path at a time, with preallocated key and value caches.

    The paths of a window share the keys and values of its context.
    """

    def __init__(
        self, network: LagLlamaNetwork, inputs: torch.Tensor, paths: int, horizon: int, rope_factor: float
    ) -> None:
        """Run the context's inputs [W, T, F] and allocate caches for `horizon` tokens of each path."""
        self.network, self.tokens = network, inputs.shape[1]
        self._cos, self._sin = rotary_angles(self.tokens + horizon, network.head_width, rope_factor, inputs.device)
        self._context: list[tuple[torch.Tensor, torch.Tensor]] = []
        self._own: list[tuple[torch.Tensor, torch.Tensor]] = []
        states = network.transformer.wte(inputs)
        positions = slice(0, self.tokens)
        for block in network.blocks:
            query, key, value = block.attn.project(block.rms_1(states), self._cos[positions], self._sin[positions])
            heads = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
            states = states + block.attn.c_proj(join_heads(heads))
            states = states + block.mlp(block.rms_2(states))
            self._context.append((key, value))
            room = (*key.shape[:2], paths, horizon)
            own = (tensor.new_empty((*room, tensor.shape[-1])) for tensor in (key, value))  # [W, h, S, H, d_h or d_v]
            self._own.append((next(own), next(own)))
        self.first = network.head(states[:, -1:])  # [W, 1]

    def next(self, inputs: torch.Tensor, step: int) -> StudentT:
        """Return the distributions [W, S] of the step after `step`, given the inputs [W, S, F] of `step`."""
        states = self.network.transformer.wte(inputs)
        for index, block in enumerate(self.network.blocks):
            states = states + self._attend(block.attn, block.rms_1(states), index, step)
            states = states + block.mlp(block.rms_2(states))
        return self.network.head(states)

    def _attend(self, attention: Attention, states: torch.Tensor, index: int, step: int) -> torch.Tensor:
        position = self.tokens + step
        query, key, value = attention.project(states, self._cos[position], self._sin[position])  # [W, h, S, d_h]
        (keys, values), (own_keys, own_values) = self._context[index], self._own[index]
        own_keys[..., step, :], own_values[..., step, :] = key, value
        query = (query / math.sqrt(query.shape[-1])).contiguous()
        shared = query @ keys.transpose(-1, -2)  # [W, h, S, T]
        own = (query[..., None, :] @ own_keys[..., : step + 1, :].transpose(-1, -2))[..., 0, :]  # [W, h, S, step + 1]
        weights = torch.softmax(torch.cat((shared, own), dim=-1), dim=-1)
        over_context, over_own = weights.split((self.tokens, step + 1), dim=-1)
        from_own = (over_own[..., None, :] @ own_values[..., : step + 1, :])[..., 0, :]
        return cast(torch.Tensor, attention.c_proj(join_heads(over_context @ values + from_own)))


class StudentT(NamedTuple):
    """Parameters of the distribution of the next scaled step, each [..., T]."""

    df: torch.Tensor
    loc: torch.Tensor
    scale: torch.Tensor


class Standardised(NamedTuple):
    """Windows, standardised with their own loc and scale.

    steps: [W, N], scaled. loc, scale: [W], in the units of the given values. fill: [W], value of a missing
    step, in the units of the given values. static: [W, 2], features log1p|loc| and log scale in the data's
    units.
    """

    steps: torch.Tensor
    loc: torch.Tensor
    scale: torch.Tensor
    fill: torch.Tensor
    static: torch.Tensor

    def apply(self, values: Float[torch.Tensor, "window step"]) -> Float[torch.Tensor, "window step"]:
        """Return other values of the same windows, standardised with the same loc and scale.

        The result is clamped to ±HUGE, beyond which float32 sums of squares overflow. A constant window needs
        this, because its scale is 1e-10.
        """
        filled = torch.where(values.isnan(), self.fill[:, None], values)
        return ((filled - self.loc[:, None]) / self.scale[:, None]).clamp(-HUGE, HUGE)


def standardise(
    values: Float[torch.Tensor, "window step"], factor: Float[torch.Tensor, " window"], missing: str
) -> Standardised:
    """Return windows of history and context with robust scaling.

    values: NaN where missing; the data are values times factor. missing: "zero" fills missing steps with 0 in
    the data's units, as the release does, and "median" fills them with loc.
    loc is the median (the lower of the two middle values). scale is the interquartile range, at least 1e-10
    in the data's units. If nothing is observed, they are 0 and 1 in the data's units.
    Source: the released code, gluon_utils/scalers/robust_scaler.py.
    """
    median = values.nanmedian(dim=1).values
    low, high = (torch.nanquantile(values, level, dim=1) for level in (0.25, 0.75))
    nothing = median.isnan()
    loc = torch.where(nothing, 0.0, median)
    spread = torch.where(nothing, 1.0 / factor, (high - low).double())
    # In float64: with a factor of 2^127, the minimum would be 0 in float32.
    scale = torch.maximum(spread, MINIMUM_SCALE / factor.double())
    static = torch.stack((torch.log1p((loc * factor).abs()), torch.log(scale * factor)), dim=1).float()
    fill = torch.zeros_like(loc) if missing == "zero" else loc
    normal = scale.clamp_min(torch.finfo(torch.float32).tiny).float()
    standardised = Standardised(values, loc, normal, fill, static)
    return standardised._replace(steps=standardised.apply(values))


def features(
    steps: Float[torch.Tensor, "... step"],
    static: Float[torch.Tensor, "... 2"],
    lags: Int[torch.Tensor, " lag"],
    positions: Int[torch.Tensor, " token"],
    calendar: Float[torch.Tensor, "... token 6"],
) -> Float[torch.Tensor, "... token feature"]:
    """Return the inputs of the tokens at `positions`.

    They are the values `lags` steps before each position, log1p|loc|, log scale and six calendar features.
    calendar: features of these positions (`tsfmscope.series.calendar`), for each window or for each of
    its paths.
    """
    lagged = steps[..., positions[:, None] - lags]  # [..., T, L]
    still = static[..., None, :].expand(*lagged.shape[:-1], -1)
    return torch.cat((lagged, still, calendar.expand(*lagged.shape[:-1], -1)), dim=-1)


def rotary_angles(
    count: int, width: int, factor: float, device: torch.device
) -> tuple[Float[torch.Tensor, "token head_width"], Float[torch.Tensor, "token head_width"]]:
    """Return cosines and sines of the rotary angles of positions 0..count - 1, divided by `factor`."""
    frequencies = BASE ** -(torch.arange(0, width, 2, device=device).float() / width)
    angles = (torch.arange(count, device=device).float() / factor)[:, None] * frequencies
    both = torch.cat((angles, angles), dim=-1)
    return both.cos(), both.sin()


class RMSNorm(nn.Module):
    """RMS norm over the last axis: x / sqrt(mean(x^2) + eps) * scale."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(width))

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        return functional.rms_norm(states, self.scale.shape, self.scale, EPSILON)


class Attention(nn.Module):
    """Causal rotary self-attention without biases; values may be narrower than keys.

    In the state dict, keys and values are one matrix `kv_proj`, keys first, as in the release. This holds
    only if both are plain Linears and both or neither have a bias; otherwise they are stored separately.
    """

    def __init__(self, heads: int, head_width: int) -> None:
        super().__init__()
        width = heads * head_width
        self.heads = heads
        self.q_proj, self.k_proj, self.v_proj, self.c_proj = (nn.Linear(width, width, bias=False) for _ in range(4))
        self.register_state_dict_post_hook(_join)
        self.register_load_state_dict_pre_hook(_split_heads)

    def project(
        self, states: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return rotated queries, rotated keys, and values, [B, h, T, d_h] each, from states [B, T, d]."""
        query, key, value = (split_heads(part(states), self.heads) for part in (self.q_proj, self.k_proj, self.v_proj))
        return rotate(query, cos, sin), rotate(key, cos, sin), value

    def forward(self, states: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        heads = functional.scaled_dot_product_attention(*self.project(states, cos, sin), is_causal=True)
        return cast(torch.Tensor, self.c_proj(join_heads(heads)))


def _shared_projections(attention: Attention) -> list[str]:
    """Return the names among `weight` and `bias` that keys and values share in the state dict."""
    parts = (attention.k_proj, attention.v_proj)
    if any(type(part) is not nn.Linear for part in parts) or len({part.bias is None for part in parts}) == 2:
        return []
    return ["weight"] if parts[0].bias is None else ["weight", "bias"]


def _join(attention: Any, state: dict[str, Any], prefix: str, metadata: Any) -> None:
    for name in _shared_projections(attention):
        key, value = (state.pop(f"{prefix}{part}.{name}") for part in ("k_proj", "v_proj"))
        state[f"{prefix}kv_proj.{name}"] = torch.cat((key, value))


def _split_heads(attention: Any, state: dict[str, Any], prefix: str, *_: Any) -> None:
    rows = attention.k_proj.out_features
    for name in _shared_projections(attention):
        if (joint := state.pop(f"{prefix}kv_proj.{name}", None)) is not None:
            state[f"{prefix}k_proj.{name}"] = joint[:rows].clone()
            state[f"{prefix}v_proj.{name}"] = joint[rows:].clone()


class MLP(nn.Module):
    """Gated MLP: SiLU(x W_1) * (x W_2), then a projection back to the model's width.

    The inner width is 8/3 of the model's width, rounded up to a multiple of 256.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        inner = -(-int(8 * width / 3) // MULTIPLE) * MULTIPLE
        self.c_fc1, self.c_fc2 = (nn.Linear(width, inner, bias=False) for _ in range(2))
        self.c_proj = nn.Linear(inner, width, bias=False)

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        return cast(torch.Tensor, self.c_proj(functional.silu(self.c_fc1(states)) * self.c_fc2(states)))


class Block(nn.Module):
    """Transformer block: attention and MLP, each applied to the normed residual stream and added to it."""

    def __init__(self, heads: int, head_width: int) -> None:
        super().__init__()
        self.rms_1 = RMSNorm(heads * head_width)
        self.attn = Attention(heads, head_width)
        self.rms_2 = RMSNorm(heads * head_width)
        self.mlp = MLP(heads * head_width)

    def forward(self, states: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        states = states + self.attn(self.rms_1(states), cos, sin)
        return cast(torch.Tensor, states + self.mlp(self.rms_2(states)))


class StudentTHead(nn.Module):
    """Student-t head: one linear map per parameter (df, loc, scale), then the domain map of gluonts.

    The formulas are those of gluonts' StudentTOutput.domain_map; gluonts itself is not called.
    """

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


class LagLlamaNetwork(PlacedModule):
    """Network from inputs [B, T, F] to the distribution of each next step.

    Weights are initialised as torch's layers are by default, as in the release.
    """

    def __init__(self, *, inputs: int, layers: int, heads: int, head_width: int) -> None:
        super().__init__()
        self.head_width = head_width
        self.transformer = Transformer(inputs=inputs, layers=layers, heads=heads, head_width=head_width)
        self.param_proj = StudentTHead(heads * head_width)

    @property
    def blocks(self) -> list[Block]:
        """List of the blocks, first to last."""
        return cast(list[Block], list(self.transformer.h))

    def forward(self, inputs: Float[torch.Tensor, "window token feature"], rope_factor: float = 1.0) -> StudentT:
        cos, sin = rotary_angles(inputs.shape[1], self.head_width, rope_factor, inputs.device)
        states = self.transformer.wte(inputs)
        for block in self.blocks:
            states = block(states, cos, sin)
        return self.head(states)

    def head(self, states: torch.Tensor) -> StudentT:
        """Return the distribution of the next step from the last block's states [..., d]."""
        answer: StudentT = self.param_proj(self.transformer.ln_f(states))
        return answer

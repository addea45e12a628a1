"""Network of Time-MoE (Shi et al. 2025, section 3) with names and shapes of the released state dict.

Module and parameter names, and which layers have biases, are those of Time-MoE/Time-MoE, time_moe/models. The
computations are written from that paper and that code's arithmetic.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Self, cast

import torch
from jaxtyping import Bool, Float, Int
from torch import nn
from torch.nn import functional

from tsfmscope.models.common.layers import PlacedModule, RMSNorm, join_heads, rotate, split_heads

# Tokens of the windows that are continued together: 1.2 GB of keys and values at the 50M shape.
TOKENS = 1 << 15


def continue_values(
    network: TimeMoENetwork,
    values: Float[torch.Tensor, "window token"],
    start: Int[torch.Tensor, " window"],
    horizon: int,
    lengths: Sequence[int],
) -> Float[torch.Tensor, "window horizon"]:
    """Return the steps after scaled `values`.

    The longest head that fits the remaining horizon forecasts first, then the longest that fits the rest, and
    so on. start: as in the network's forward. lengths: steps of every head. The result equals that of passes
    over the whole series so far, up to rounding.
    """
    windows = max(1, TOKENS // (values.shape[1] + horizon))
    parts = zip(values.split(windows), start.split(windows), strict=True)
    return torch.cat([_continue_batch(network, *part, horizon, lengths) for part in parts])


def _continue_batch(
    network: TimeMoENetwork, values: torch.Tensor, start: torch.Tensor, horizon: int, lengths: Sequence[int]
) -> torch.Tensor:
    reader = Reader(network, start, values.shape[1] + horizon)
    left, parts = horizon, []
    while left:
        number = max((i for i, length in enumerate(lengths) if length <= left), default=0)
        values = network.lm_heads[number](reader.read(values))[:, :left]
        left -= values.shape[1]
        parts.append(values)
    return torch.cat(parts, dim=1)


class Reader:
    """Forward pass over steps as they arrive, with preallocated keys and values of earlier steps."""

    def __init__(self, network: TimeMoENetwork, start: torch.Tensor, room: int) -> None:
        """Prepare for at most `room` steps of each window; start: first step that is not padding."""
        self.network, self._start, self._room, self._seen = network, start, room, 0
        self._caches: list[tuple[torch.Tensor, torch.Tensor]] = []

    def read(self, values: Float[torch.Tensor, "window token"]) -> Float[torch.Tensor, "window width"]:
        """Read the next steps and return the normed state of the last one."""
        network, first, end = self.network, self._seen, self._seen + values.shape[1]
        cos, sin = network.angles(torch.arange(first, end, device=values.device) - self._start[:, None])
        free = not bool((self._start > 0).any()) and (first == 0 or values.shape[1] == 1)
        mask = None if free else causal_mask(first, end, self._start)
        states = network.model.embed_layer(values)
        for index, block in enumerate(network.blocks):
            normed = block.input_layernorm(states)
            query, key, value = block.self_attn.project(normed, cos, sin)
            keys, all_values = self._store(index, key, value)
            states = states + block.self_attn.attend(query, keys, all_values, mask, causal=free and first == 0)
            states = states + block.ffn_layer(block.post_attention_layernorm(states))[0]
        self._seen = end
        return cast(torch.Tensor, network.model.norm(states[:, -1]))

    def _store(self, index: int, key: torch.Tensor, value: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Store keys and values; return those of all steps so far, [B, h, T, width].

        The first pass returns its own keys and values, which are copied to the cache but not read back.
        """
        if not self._seen:
            room = [tensor.new_empty(*tensor.shape[:2], self._room, tensor.shape[-1]) for tensor in (key, value)]
            self._caches.append((room[0], room[1]))
        at = slice(self._seen, self._seen + key.shape[2])
        for cache, tensor in zip(self._caches[index], (key, value), strict=True):
            cache[:, :, at] = tensor
        keys, values = (cache[:, :, : at.stop] for cache in self._caches[index])
        return (key, value) if not self._seen else (keys, values)


class Answer(NamedTuple):
    """Output of the network.

    states: after the final norm, [B, T, d]. routes: logits of every block's router, [B, T, E] each.
    """

    states: torch.Tensor
    routes: list[torch.Tensor]


class InputEmbedding(nn.Module):
    """SwiGLU of one value without biases: swish(w·x)·(v·x), so that 0 maps to 0 (Shi et al. 2025, eq. 1)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.emb_layer = nn.Linear(1, width, bias=False)
        self.gate_layer = nn.Linear(1, width, bias=False)

    def forward(self, values: Float[torch.Tensor, "window token"]) -> Float[torch.Tensor, "window token width"]:
        steps = values[..., None]
        return cast(torch.Tensor, functional.silu(self.gate_layer(steps)) * self.emb_layer(steps))


class Expert(nn.Module):
    """SwiGLU MLP without biases."""

    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(width, inner, bias=False)
        self.up_proj = nn.Linear(width, inner, bias=False)
        self.down_proj = nn.Linear(inner, width, bias=False)

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        return cast(torch.Tensor, self.down_proj(functional.silu(self.gate_proj(states)) * self.up_proj(states)))


class SparseExperts(nn.Module):
    """Routed experts of each token, and one expert that all tokens share.

    The experts with the highest router probabilities are weighted by a softmax over all experts, which is not
    renormalised. The shared expert is weighted by a sigmoid. Each routed expert is `inner / top_k` wide, so
    that the chosen ones together are as wide as the shared one (Shi et al. 2025, eqs. 5 to 8).
    """

    def __init__(self, width: int, inner: int, experts: int, top_k: int) -> None:
        super().__init__()
        self.top_k = top_k
        self.gate = nn.Linear(width, experts, bias=False)
        self.experts = nn.ModuleList(Expert(width, inner // top_k) for _ in range(experts))
        self.shared_expert = Expert(width, inner)
        self.shared_expert_gate = nn.Linear(width, 1, bias=False)

    def forward(self, states: Float[torch.Tensor, "window token width"]) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the experts' output, and the router's logits [B, T, E]."""
        tokens = states.flatten(0, -2)
        routes = self.gate(tokens)
        weights, expert_ids = routes.softmax(dim=-1).topk(self.top_k, dim=-1)
        output = torch.sigmoid(self.shared_expert_gate(tokens)) * self.shared_expert(tokens)
        for number, expert in enumerate(self.experts):
            token, rank = torch.where(expert_ids == number)
            output = output.index_add(0, token, expert(tokens[token]) * weights[token, rank, None])
        return output.view_as(states), routes.view(*states.shape[:-1], -1)


class Attention(nn.Module):
    """Causal attention with rotated queries and keys.

    Only q, k and v have biases, as released. Values may be narrower than keys.
    """

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.q_proj, self.k_proj, self.v_proj = (nn.Linear(width, width) for _ in range(3))
        self.o_proj = nn.Linear(width, width, bias=False)

    def project(
        self, states: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return rotated queries and keys, and values, [B, h, T, width of a head], of states [B, T, d]."""
        query, key, value = (split_heads(part(states), self.heads) for part in (self.q_proj, self.k_proj, self.v_proj))
        return rotate(query, cos, sin), rotate(key, cos, sin), value

    def attend(
        self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor | None, *, causal: bool
    ) -> torch.Tensor:
        """Return the output [B, T, d] for the queries, keys and values that `projected` returns.

        causal: there are as many queries as keys, and no mask.
        """
        heads = functional.scaled_dot_product_attention(query, key, value, attn_mask=mask, is_causal=causal)
        return cast(torch.Tensor, self.o_proj(join_heads(heads)))

    def forward(
        self, states: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, mask: torch.Tensor | None
    ) -> torch.Tensor:
        return self.attend(*self.project(states, cos, sin), mask, causal=mask is None)


class Block(nn.Module):
    """Attention and experts, each applied to the normed residual stream and added to it."""

    def __init__(self, shape: Mapping[str, Any]) -> None:
        super().__init__()
        width, eps = shape["hidden_size"], shape["rms_norm_eps"]
        self.self_attn = Attention(width, shape["num_attention_heads"])
        sizes = (shape[key] for key in ("intermediate_size", "num_experts", "num_experts_per_tok"))
        self.ffn_layer = SparseExperts(width, *sizes)
        self.input_layernorm = RMSNorm(width, eps)
        self.post_attention_layernorm = RMSNorm(width, eps)

    def forward(
        self, states: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, mask: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the residual stream, and the router's logits."""
        states = states + self.self_attn(self.input_layernorm(states), cos, sin, mask)
        added, routes = self.ffn_layer(self.post_attention_layernorm(states))
        return states + added, routes


class Decoder(nn.Module):
    """Input embedding, blocks and final norm."""

    def __init__(self, shape: Mapping[str, Any]) -> None:
        super().__init__()
        self.embed_layer = InputEmbedding(shape["hidden_size"])
        self.layers = nn.ModuleList(Block(shape) for _ in range(shape["num_hidden_layers"]))
        self.norm = RMSNorm(shape["hidden_size"], shape["rms_norm_eps"])


class TimeMoENetwork(PlacedModule):
    """Network from scaled steps [B, T] to the states that the heads read.

    shape: keys of config.json, without defaults.
    """

    def __init__(self, shape: Mapping[str, Any]) -> None:
        super().__init__()
        self.head_width = shape["hidden_size"] // shape["num_attention_heads"]
        self.base = float(shape["rope_theta"])
        self.model = Decoder(shape)
        # Each forecasts the next steps of a state at once.
        self.lm_heads = nn.ModuleList(
            nn.Sequential(OrderedDict(out_layer=nn.Linear(shape["hidden_size"], steps, bias=False)))
            for steps in shape["horizon_lengths"]
        )

    def draw_weights(self, std: float) -> Self:
        """Draw the weights of all Linears as the release does (normal, biases 0); return the network."""
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.normal_(module.weight, std=std)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
        return self

    @property
    def blocks(self) -> list[Block]:
        """Blocks, first to last."""
        return cast(list[Block], list(self.model.layers))

    def forward(self, values: Float[torch.Tensor, "window token"], start: Int[torch.Tensor, " window"]) -> Answer:
        """Return normed last states, and the router's logits of every block.

        start: first token of each window that is not padding. Earlier tokens attend to themselves only.
        """
        cos, sin = self.angles(torch.arange(values.shape[1], device=values.device) - start[:, None])
        mask = causal_mask(0, values.shape[1], start) if bool((start > 0).any()) else None
        states, routes = self.model.embed_layer(values), []
        for block in self.blocks:
            states, logits = block(states, cos, sin, mask)
            routes.append(logits)
        return Answer(self.model.norm(states), routes)

    def angles(self, positions: Int[torch.Tensor, "window token"]) -> tuple[torch.Tensor, torch.Tensor]:
        """Return cosines and sines [B, 1, T, d_h] of positions counted from the first token.

        Both halves of a head have the same angles.
        """
        frequencies = self.base ** -(torch.arange(0, self.head_width, 2, device=positions.device) / self.head_width)
        angles = positions.clamp_min(0)[:, None, :, None].float() * frequencies
        both = torch.cat((angles, angles), dim=-1)
        return both.cos(), both.sin()


def causal_mask(
    first: int, end: int, start: Int[torch.Tensor, " window"]
) -> Bool[torch.Tensor, "window 1 reader token"]:
    """Return which of the tokens 0 to `end` (excluded) each token from `first` on may read.

    A token reads itself, and the tokens from the window's start to itself.
    """
    at = torch.arange(end, device=start.device)
    reader = at[first:, None]
    causal, real = reader >= at, at >= start[:, None]
    return ((causal & real[:, None]) | (reader == at))[:, None]


def balance(
    routes: Sequence[Float[torch.Tensor, "window token expert"]],
    top_k: int,
    counted: Bool[torch.Tensor, "window token"],
) -> torch.Tensor:
    """Return the auxiliary loss that balances experts.

    It is E sum_e (share of tokens sent to e) (mean probability of e), over the counted tokens of all blocks
    together. It is summed over the `top_k` ranks, as in the released code; Shi et al. 2025, eq. 11 divides
    by their number. It equals `top_k` where all experts are used alike.
    """
    logits = torch.cat([route[counted] for route in routes])  # [N, E]
    probabilities = logits.softmax(dim=-1)
    experts = logits.shape[-1]
    expert_ids = probabilities.topk(top_k, dim=-1).indices
    shares = functional.one_hot(expert_ids, experts).float().mean(dim=0)  # [k, E]
    return (shares * probabilities.mean(dim=0)).sum() * experts

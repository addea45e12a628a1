"""Attention for T5's encoder on a CPU, with one relative-position bias for all windows.

Where a window has gaps or padding, transformers adds the bias to the masks of all windows, in every layer.
That takes more than half of the time of a forward pass. Here windows are masked one at a time, and a window
without gaps uses the shared bias.

PyTorch's fused CPU kernel gives no gradient of an additive bias. Where one is needed, T5 falls back to scores
of the whole batch, which pass through main memory about ten times. The function here computes the scores of
one window at a time, which stay in the cache.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from transformers.cache_utils import EncoderDecoderCache
from transformers.models.t5.modeling_t5 import ALL_ATTENTION_FUNCTIONS, T5Attention, eager_attention_forward

from tsfmscope.models.common.attention import Widths

if TYPE_CHECKING:
    import torch


def resize(attention: Any, widths: Widths) -> None:
    """Set the head widths of a T5Attention; with equal widths transformers' own forward is used."""
    attention.key_value_proj_dim = widths.key
    attention.inner_dim = attention.n_heads * widths.key
    attention.__class__ = T5Attention if widths.key == widths.value else NarrowT5Attention


class NarrowT5Attention(T5Attention):
    """T5Attention of transformers 5 with keys of `key_value_proj_dim` and values of the width of `v`."""

    def forward(
        self,
        hidden_states: torch.Tensor,
        mask: torch.Tensor | None = None,
        key_value_states: torch.Tensor | None = None,
        position_bias: torch.Tensor | None = None,
        past_key_values: Any = None,
        **kwargs: Any,
    ) -> tuple[Any, ...]:
        """Compute attention as transformers does; the handling of caches follows its code line by line."""
        cross = key_value_states is not None
        n_cached = past_key_values.get_seq_length(self.layer_idx) if past_key_values is not None else 0
        query = self._heads(self.q(hidden_states))
        cache, cached = past_key_values, False
        if isinstance(past_key_values, EncoderDecoderCache):
            cached = bool(cross and past_key_values.is_updated.get(self.layer_idx))
            cache = past_key_values.cross_attention_cache if cross else past_key_values.self_attention_cache
        if cached:
            key, value = cache.layers[self.layer_idx].keys, cache.layers[self.layer_idx].values
        else:
            source = key_value_states if key_value_states is not None else hidden_states
            key, value = self._heads(self.k(source)), self._heads(self.v(source))
            if cache is not None:
                key, value = cache.update(key, value, self.layer_idx)
                if cross and isinstance(past_key_values, EncoderDecoderCache):
                    past_key_values.is_updated[self.layer_idx] = True
        if position_bias is None and self.has_relative_attention_bias:
            position_bias = self.compute_bias(
                query.shape[2], key.shape[2], device=query.device, past_seen_tokens=n_cached
            )
        elif position_bias is None:
            position_bias = query.new_zeros((1, self.n_heads, query.shape[2], key.shape[2]))
        attend = ALL_ATTENTION_FUNCTIONS.get_interface(self.config._attn_implementation, eager_attention_forward)
        dropout = self.dropout if self.training else 0.0
        output, weights = attend(
            self, query, key, value, mask, dropout=dropout, scaling=self.scaling, position_bias=position_bias, **kwargs
        )
        joined: torch.Tensor = self.o(output.reshape(*hidden_states.shape[:-1], -1).contiguous())
        return joined, position_bias, weights

    def _heads(self, projected: torch.Tensor) -> torch.Tensor:
        heads: torch.Tensor = projected.unflatten(-1, (self.n_heads, -1)).transpose(1, 2)
        return heads


NAME = "windowwise"


def use_windowwise(encoder: Any) -> None:
    """Make a T5 encoder use this attention on a CPU; on other devices it stays torch's SDPA."""
    from transformers.masking_utils import AttentionMaskInterface, sdpa_mask
    from transformers.modeling_utils import AttentionInterface

    AttentionInterface.register(NAME, windowwise_attention)
    AttentionMaskInterface.register(NAME, sdpa_mask)
    encoder.config._attn_implementation = NAME


def windowwise_attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    position_bias: torch.Tensor | None = None,
    **options: Any,
) -> tuple[Any, None]:
    """Compute attention with the interface of transformers.

    Inputs are [B, h, T, d], the output is [B, T, h, d], and no attention weights are returned. torch's SDPA
    is used on other devices than a CPU, with dropout, with a scaling other than 1, and without a bias.
    """
    import torch
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    plain = query.device.type != "cpu" or options.get("dropout") or options.get("scaling") != 1.0
    if plain or position_bias is None:
        options["position_bias"] = position_bias
        return sdpa_attention_forward(module, query, key, value, attention_mask, **options)[0], None
    attend = _function().apply if torch.is_grad_enabled() else _forward
    return attend(query, key, value, position_bias, attention_mask), None


def _forward(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, bias: torch.Tensor, mask: torch.Tensor | None
) -> torch.Tensor:
    """Compute attention without gradients by torch's fused kernel.

    Without a mask all windows are computed together, else one by one.
    """
    import torch
    from torch.nn.functional import scaled_dot_product_attention

    bias = bias.to(query.dtype).contiguous()
    if mask is None:
        out = scaled_dot_product_attention(query, key, value, attn_mask=bias, scale=1.0)
        return out.transpose(1, 2).contiguous()
    lowest, parts = torch.finfo(bias.dtype).min, []
    for b in range(len(query)):
        added = bias if bool(mask[b].all()) else torch.where(mask[b], bias, lowest)
        part = slice(b, b + 1)
        parts.append(scaled_dot_product_attention(query[part], key[part], value[part], attn_mask=added, scale=1.0))
    return torch.cat(parts).transpose(1, 2).contiguous()


def _function() -> Any:
    import torch

    class WindowwiseAttention(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, query: Any, key: Any, value: Any, bias: Any, mask: Any) -> Any:
            batch, heads, steps, _ = query.shape
            weights = query.new_empty(batch, heads, steps, key.shape[2])
            out = query.new_empty(batch, steps, heads, value.shape[3])
            lowest = torch.finfo(query.dtype).min
            for b in range(batch):
                added = bias[0] if mask is None else bias[0].masked_fill(~mask[b], lowest)
                torch.softmax(torch.baddbmm(added, query[b], key[b].transpose(1, 2)), dim=-1, out=weights[b])
                out[b] = torch.bmm(weights[b], value[b]).transpose(0, 1)
            ctx.save_for_backward(query, key, value, weights)
            return out

        @staticmethod
        def backward(ctx: Any, grad: torch.Tensor) -> tuple[Any, ...]:
            query, key, value, weights = ctx.saved_tensors
            grads = [torch.empty_like(t) for t in (query, key, value)]
            to_bias = torch.zeros_like(weights[0])
            for b in range(len(query)):
                toward = grad[b].transpose(0, 1)  # [h, T, d]
                grads[2][b] = torch.bmm(weights[b].transpose(1, 2), toward)
                to_weights = torch.bmm(toward, value[b].transpose(1, 2))
                to_scores = torch._softmax_backward_data(to_weights, weights[b], -1, weights.dtype)
                to_bias += to_scores
                grads[0][b] = torch.bmm(to_scores, key[b])
                grads[1][b] = torch.bmm(to_scores.transpose(1, 2), query[b])
            return *grads, to_bias[None], None

    return WindowwiseAttention

"""T5 attention with heads narrower than the config's, and values of another width than keys."""

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

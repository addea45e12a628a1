"""T5 without gradients: an encoder that runs few windows at a time, and a decoder that runs step by step.

The decoder's caches are preallocated. Heads may have any width. The decoder's states are stored in columns,
[d, paths]: W X is multiplied a tenth faster than X^T W^T at the hundred or so paths of a forecast, and these
products are most of its time. For two to FEW_PATHS paths on a CPU, X^T W^T is twice as fast.

A sample takes one encoder pass and one set of cross-attention keys and values per window. The distribution is that of
transformers' `generate` with min_new_tokens = max_new_tokens: EOS excluded, then temperature, top-k, top-p. The samples
of a window are the queries of one cross-attention, so its keys are neither copied nor read again for each sample.

Gradients on a CPU run attention with one relative-position bias for all windows (`windowwise_attention`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import torch
from chronos import ChronosPipeline
from chronos.chronos import ChronosModel
from torch.nn import functional
from transformers import T5ForConditionalGeneration
from transformers.cache_utils import EncoderDecoderCache
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import AttentionMaskInterface, sdpa_mask
from transformers.modeling_utils import AttentionInterface
from transformers.models.t5.modeling_t5 import ALL_ATTENTION_FUNCTIONS, T5Attention, eager_attention_forward

from tsfmscope.models.common.attention import Widths
from tsfmscope.models.common.layers import LowRank, split_heads

# Sample paths decoded together: enough to fill matrix products, few enough for the cache.
ROWS = 2048
# Tokens encoded together on a CPU: a product of 513 rows has 0.9 of the speed of one of 2,052.
TOKENS = 1024
TOKENS_GPU = 32_768
# Measured for float32 on one core of an AMD EPYC: 2 to 8 columns times a matrix of 256 x 256 to 768 x 3072 take 2.0 to
# 3.2 times as long as the same rows, one column as long, and 16 or more about as long.
FEW_PATHS = 8
# Smallest head width passed to attention: torch's fused kernel takes 1.5 times as long on one of 6.
NARROWEST = 16
# Name under which transformers finds `windowwise_attention`.
WINDOWWISE = "windowwise"


class Warp(NamedTuple):
    """Settings of chronos that turn logits into probabilities; `excluded` ids are never sampled."""

    temperature: float
    top_k: int | None
    top_p: float
    excluded: int | list[int]


def sample_ids(
    network: Any, ids: torch.Tensor, mask: torch.Tensor, uniforms: torch.Tensor, config: Any
) -> torch.Tensor:
    """Return ids [W, S, H] for encoder ids and mask [W, T].

    uniforms: [W, S, H] in [0, 1); each decides one step of one path.
    """
    warp = Warp(config.temperature, config.top_k, config.top_p, config.eos_token_id)
    windows = max(1, ROWS // uniforms.shape[1])
    parts = []
    with torch.inference_mode():
        for start in range(0, len(ids), windows):
            part = slice(start, start + windows)
            decoder = StepDecoder(network, ids[part], mask[part], *uniforms.shape[1:])
            parts.append(walk(decoder, partial(_choose, uniforms[part].to(ids.device), warp)))
    return torch.cat(parts)


def _choose(uniforms: torch.Tensor, warp: Warp, logits: torch.Tensor, step: int) -> torch.Tensor:
    return draw(logits, uniforms[:, :, step], warp)


def walk(decoder: StepDecoder, choose: Callable[[torch.Tensor, int], torch.Tensor]) -> torch.Tensor:
    """Return ids [W, S, H], chosen step by step.

    choose: takes logits [W, S, V] and the step, and returns ids [W, S].
    """
    current, ids = decoder.start, []
    for step in range(decoder.steps):
        current = choose(decoder.logits(current, step), step)
        ids.append(current)
    return torch.stack(ids, dim=-1)


def draw(logits: torch.Tensor, uniforms: torch.Tensor, warp: Warp) -> torch.Tensor:
    """Sample ids [W, S] by inverse CDF, the most likely ids first.

    With ties at the k-th logit exactly k ids are kept, not all that tie. Logits of excluded ids are
    overwritten.
    """
    logits[..., warp.excluded] = -math.inf
    if warp.temperature != 1.0:
        logits = logits / warp.temperature
    n_ids = min(warp.top_k or logits.shape[-1], logits.shape[-1])
    # In descending order.
    values, ids = torch.topk(logits, n_ids, dim=-1)
    probabilities = torch.softmax(values.double(), dim=-1)
    cumulated = probabilities.cumsum(dim=-1)
    # An id stays if the ids before it have less than top_p together; the first always stays.
    if warp.top_p < 1.0:
        outside = cumulated - probabilities >= warp.top_p
        outside[..., 0] = False
        cumulated = probabilities.masked_fill(outside, 0.0).cumsum(dim=-1)
    index = (cumulated <= uniforms[..., None] * cumulated[..., -1:]).sum(dim=-1).clamp(max=n_ids - 1)
    return ids.gather(-1, index[..., None])[..., 0]


class StepDecoder:
    """T5 decoder of one id of every sample path at a time.

    Paths are ordered by window: the S samples of the first window, then those of the next.
    """

    def __init__(self, network: Any, ids: torch.Tensor, mask: torch.Tensor, samples: int, steps: int) -> None:
        """Encode the windows [W, T] once; allocate caches for W x samples paths and `steps` steps."""
        self.network, self.steps, self.samples, self.windows = network, steps, samples, len(ids)
        self._stack = network.decoder
        own = [block.layer[0].SelfAttention for block in self._stack.block]
        cross = [block.layer[1].EncDecAttention for block in self._stack.block]
        self._bias = own[0].compute_bias(steps, steps)[0].contiguous()  # [h, H, H]
        self._masked = None if bool(mask.all()) else _additive_mask(mask, network.dtype)[:, None, None, :]
        empty, paths = self._bias.new_empty, len(ids) * samples
        self._cross = [
            tuple(empty(len(ids) * attention.n_heads, width, ids.shape[1]) for width in _widths(attention))
            for attention in cross
        ]
        for part, encoded in encode(network.encoder, ids, mask):
            for attention, (keys, values) in zip(cross, self._cross, strict=True):
                for cache, linear in ((keys, attention.k), (values, attention.v)):
                    heads = split_heads(_rows(linear, encoded), attention.n_heads)  # [n, h, T, d]
                    cache.unflatten(0, (self.windows, -1))[part] = heads.transpose(2, 3)
        self._own = [
            tuple(empty(paths, attention.n_heads, steps, width) for width in _widths(attention)) for attention in own
        ]
        width = self._stack.config.d_model
        self._room = empty(width * paths)
        self._scores = empty(own[0].n_heads * paths, ids.shape[1])
        self._mean = self._bias.new_full((1, width), 1 / width)
        self.start = torch.full((len(ids), samples), network.config.decoder_start_token_id, device=ids.device)

    @property
    def caches(self) -> list[torch.Tensor]:
        """Cached keys and values."""
        return [part for pair in (*self._cross, *self._own) for part in pair]

    def logits(self, ids: torch.Tensor, step: int) -> torch.Tensor:
        """Return logits [W, S, V] for the ids [W, S].

        At step 0 all ids are `start`, so one path per window is computed and its logits are repeated.
        """
        ids = ids if step else ids[:, :1]
        hidden = self._stack.embed_tokens(ids.flatten()).t().contiguous()  # [d, paths]
        for index, block in enumerate(self._stack.block):
            own, cross, dense = block.layer
            self._attend_own(own.SelfAttention, self._normalise(own.layer_norm, hidden), index, step, hidden)
            self._attend_cross(cross.EncDecAttention, self._normalise(cross.layer_norm, hidden), index, hidden)
            mlp, normed = dense.DenseReluDense, self._normalise(dense.layer_norm, hidden)
            inner = [_columns(getattr(mlp, name), normed) for name in ("wi", "wi_0", "wi_1") if hasattr(mlp, name)]
            hidden += _columns(mlp.wo, _activate(mlp, *inner))
        hidden = self._normalise(self._stack.final_layer_norm, hidden)
        if self.network.config.scale_decoder_outputs:
            hidden *= self.network.model_dim**-0.5
        logits: torch.Tensor = _rows(self.network.lm_head, hidden.t()).view(*ids.shape, -1)
        return logits if step else logits.repeat(1, self.samples, 1)

    def _normalise(self, norm: Any, hidden: torch.Tensor) -> torch.Tensor:
        """Apply T5's norm to columns in a reused buffer; the mean is a product, faster than a reduction."""
        room = self._room[: hidden.numel()].view_as(hidden)
        squares = torch.mul(hidden, hidden, out=room)
        scale = torch.mm(self._mean, squares).add_(self.network.config.layer_norm_epsilon).rsqrt_()  # [1, paths]
        return torch.mul(hidden, scale, out=room).mul_(norm.weight[:, None])

    def _attend_own(self, attention: Any, normed: torch.Tensor, index: int, step: int, hidden: torch.Tensor) -> None:
        query, *new = (
            _columns(linear, normed).unflatten(0, (attention.n_heads, -1)).permute(2, 0, 1)
            for linear in (attention.q, attention.k, attention.v)
        )
        keys, values = (
            self._write_cache(cache, projected, step) for cache, projected in zip(self._own[index], new, strict=True)
        )
        scores = torch.matmul((query * attention.scaling)[:, :, None], keys.transpose(2, 3))
        weights = torch.softmax(scores.add_(self._bias[:, step : step + 1, : step + 1]), dim=-1)
        out = torch.matmul(weights, values)[:, :, 0]  # [paths, h, d]
        hidden += _columns(attention.o, out.flatten(1).t())

    def _write_cache(self, cache: torch.Tensor, new: torch.Tensor, step: int) -> torch.Tensor:
        """Write the keys or values of a step into a cache [all paths, h, H, d].

        Return the cached entries of all steps so far, for the paths that are computed.
        """
        windows = (self.windows, -1)
        cache.unflatten(0, windows)[:, :, :, step] = new.unflatten(0, windows)
        return cache[:: len(cache) // len(new), :, : step + 1]

    def _attend_cross(self, attention: Any, normed: torch.Tensor, index: int, hidden: torch.Tensor) -> None:
        """Add cross-attention to `hidden`, by three products.

        torch's fused attention hardly gains from a second thread on so few queries.
        """
        keys, values = self._cross[index]  # [W h, d, T]
        query = _columns(attention.q, normed).unflatten(0, (attention.n_heads, -1))
        query = query.unflatten(2, (self.windows, -1)).permute(2, 0, 3, 1).flatten(0, 1)  # [W h, paths, d]
        scores = self._scores[: len(query) * query.shape[1]].view(*query.shape[:2], -1)
        torch.bmm(query * attention.scaling, keys, out=scores)
        if self._masked is not None:
            scores.view(self.windows, -1, *scores.shape[1:]).add_(self._masked)
        out = torch.bmm(values, torch.softmax(scores, dim=-1, out=scores).transpose(1, 2))  # [W h, d, paths]
        out = out.unflatten(0, (self.windows, -1)).permute(1, 2, 0, 3)
        hidden += _columns(attention.o, out.reshape(-1, hidden.shape[1]))


def encode(stack: Any, ids: torch.Tensor, mask: torch.Tensor) -> Iterator[tuple[slice, torch.Tensor]]:
    """Yield slices of the windows [W, T] with the encoder's last states [n, T, d] of each slice."""
    count = max(1, (TOKENS if ids.device.type == "cpu" else TOKENS_GPU) // ids.shape[1])
    bias = stack.block[0].layer[0].SelfAttention.compute_bias(ids.shape[1], ids.shape[1]).contiguous()  # [1, h, T, T]
    for start in range(0, len(ids), count):
        part = slice(start, start + count)
        added = bias
        if not bool(mask[part].all()):
            added = bias + _additive_mask(mask[part], bias.dtype)[:, None, None]
        yield part, _encode_context(stack, ids[part], added)


def _encode_context(stack: Any, ids: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    hidden = stack.embed_tokens(ids)  # [n, T, d]
    for block in stack.block:
        own, dense = block.layer
        attention, normed = own.SelfAttention, _normed_rows(own.layer_norm, hidden, stack.config)
        query, key, value = (
            split_heads(_rows(part, normed), attention.n_heads) for part in (attention.q, attention.k, attention.v)
        )
        out = _attend(query, key, value, bias, attention)
        hidden += _rows(attention.o, out.transpose(1, 2).flatten(2))
        normed, mlp = _normed_rows(dense.layer_norm, hidden, stack.config), dense.DenseReluDense
        inner = [_rows(getattr(mlp, name), normed) for name in ("wi", "wi_0", "wi_1") if hasattr(mlp, name)]
        hidden += _rows(mlp.wo, _activate(mlp, *inner))
    return _normed_rows(stack.final_layer_norm, hidden, stack.config)


def _attend(query: Any, key: Any, value: Any, mask: torch.Tensor, attention: Any) -> torch.Tensor:
    """Return attention output [n, h, rows, value width] for heads [n, h, rows, width].

    Zeros bring all heads to one width; they do not change the result.
    """
    wide, value_width = max(key.shape[-1], value.shape[-1], NARROWEST), value.shape[-1]
    query, key, value = (
        part if part.shape[-1] == wide else functional.pad(part, (0, wide - part.shape[-1]))
        for part in (query, key, value)
    )
    out = functional.scaled_dot_product_attention(query, key, value, attn_mask=mask, scale=attention.scaling)
    return out[..., :value_width]


def _activate(dense: Any, inner: torch.Tensor, gated: torch.Tensor | None = None) -> torch.Tensor:
    """Return the input of an MLP's last product, computed in place of `inner` where possible."""
    active: torch.Tensor = inner.relu_() if isinstance(dense.act, torch.nn.ReLU) else dense.act(inner)
    return active if gated is None else active.mul_(gated)


def _rows(linear: Any, rows: torch.Tensor) -> torch.Tensor:
    """Apply a Linear, or both factors of a LowRank, to rows [..., in] to get rows [..., out]."""
    if isinstance(linear, LowRank):
        return _rows(linear.wide, _rows(linear.narrow, rows))
    product = _times_transposed(rows, linear.weight)
    return product if linear.bias is None else product.add_(linear.bias)


def _columns(linear: Any, columns: torch.Tensor) -> torch.Tensor:
    """Apply a Linear, or both factors of a LowRank, to columns [in, n] to get columns [out, n]."""
    if isinstance(linear, LowRank):
        return _columns(linear.wide, _columns(linear.narrow, columns))
    if columns.is_cpu and 1 < columns.shape[1] <= FEW_PATHS:
        return _rows(linear, columns.t().contiguous()).t()
    product = _times_transposed(linear.weight, columns.t())
    return product if linear.bias is None else product.add_(linear.bias[:, None])


def _times_transposed(rows: torch.Tensor, matrix: torch.Tensor) -> torch.Tensor:
    """Return rows [..., k] times the transpose of matrix [m, k], shape [..., m].

    Where only one factor is in bfloat16 (tsfmscope/models/common/layers.py), the other is rounded to bfloat16
    too, and the result has the wider of the two dtypes.
    """
    if rows.dtype != matrix.dtype and torch.bfloat16 in (rows.dtype, matrix.dtype):
        rounded = functional.linear(rows.to(torch.bfloat16), matrix.to(torch.bfloat16))
        return rounded.to(torch.promote_types(rows.dtype, matrix.dtype))
    return functional.linear(rows, matrix)


def _normed_rows(norm: Any, hidden: torch.Tensor, config: Any) -> torch.Tensor:
    """Apply T5's norm to rows: division by the root mean square, without subtraction of the mean."""
    size = torch.linalg.vector_norm(hidden, dim=-1, keepdim=True, dtype=torch.float32)
    scale = size.square_().div_(hidden.shape[-1]).add_(config.layer_norm_epsilon).rsqrt_()
    normed: torch.Tensor = (hidden * scale).to(hidden.dtype).mul_(norm.weight)
    return normed


def _widths(attention: Any) -> tuple[int, int]:
    return attention.k.out_features // attention.n_heads, attention.v.out_features // attention.n_heads


def _additive_mask(mask: torch.Tensor, dtype: Any) -> torch.Tensor:
    """Return what a mask adds to scores: 0 where it is true, else the lowest number of the dtype."""
    return torch.where(mask, 0.0, torch.finfo(dtype).min).to(dtype)


def resize_heads(attention: Any, widths: Widths) -> None:
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
        query = split_heads(self.q(hidden_states), self.n_heads)
        cache, cached = past_key_values, False
        if isinstance(past_key_values, EncoderDecoderCache):
            cached = bool(cross and past_key_values.is_updated.get(self.layer_idx))
            cache = past_key_values.cross_attention_cache if cross else past_key_values.self_attention_cache
        if cached:
            key, value = cache.layers[self.layer_idx].keys, cache.layers[self.layer_idx].values
        else:
            source = key_value_states if key_value_states is not None else hidden_states
            key, value = split_heads(self.k(source), self.n_heads), split_heads(self.v(source), self.n_heads)
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


def use_windowwise(encoder: Any) -> None:
    """Make a T5 encoder use this attention on a CPU; on other devices it stays torch's SDPA."""
    AttentionInterface.register(WINDOWWISE, windowwise_attention)
    AttentionMaskInterface.register(WINDOWWISE, sdpa_mask)
    encoder.config._attn_implementation = WINDOWWISE


def windowwise_attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    position_bias: torch.Tensor | None = None,
    **options: Any,
) -> tuple[Any, None]:
    """Compute attention with the interface of transformers, with one relative-position bias for all windows.

    transformers adds the bias to the masks of all windows, in every layer, which takes more than half of the time of a
    forward pass. Here windows are masked one at a time, and a window without gaps uses the shared bias. torch's fused
    CPU kernel gives no gradient of a bias, and the scores of a whole batch would pass through main memory ten times.

    Inputs are [B, h, T, d], the output is [B, T, h, d], and no attention weights are returned. torch's SDPA
    is used on other devices than a CPU, with dropout, with a scaling other than 1, and without a bias.
    """
    plain = query.device.type != "cpu" or options.get("dropout") or options.get("scaling") != 1.0
    if plain or position_bias is None:
        options["position_bias"] = position_bias
        return sdpa_attention_forward(module, query, key, value, attention_mask, **options)[0], None
    attend = WindowwiseAttention.apply if torch.is_grad_enabled() else _attend_forward
    return attend(query, key, value, position_bias, attention_mask), None


def _attend_forward(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, bias: torch.Tensor, mask: torch.Tensor | None
) -> torch.Tensor:
    """Compute attention without gradients by torch's fused kernel.

    Without a mask all windows are computed together, else one by one.
    """
    bias = bias.to(query.dtype).contiguous()
    if mask is None:
        out = functional.scaled_dot_product_attention(query, key, value, attn_mask=bias, scale=1.0)
        return out.transpose(1, 2).contiguous()
    lowest, parts = torch.finfo(bias.dtype).min, []
    for b in range(len(query)):
        added = bias if bool(mask[b].all()) else torch.where(mask[b], bias, lowest)
        part = slice(b, b + 1)
        parts.append(
            functional.scaled_dot_product_attention(query[part], key[part], value[part], attn_mask=added, scale=1.0)
        )
    return torch.cat(parts).transpose(1, 2).contiguous()


class WindowwiseAttention(torch.autograd.Function):
    """Attention with a gradient of its bias; the scores of one window at a time stay in the cache."""

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


def fast(pipeline: ChronosPipeline) -> ChronosPipeline:
    """Return a pipeline with the network of a stock `ChronosPipeline`, which samples in less time.

    It is a `ChronosPipeline` with the same methods, arguments and results. Its samples have the distribution of the
    stock pipeline's, but are others. The keys and values of cross-attention are computed and read once per series
    instead of once per sample path, and caches are allocated once. torch's global generator decides the samples, as in
    the stock pipeline (`torch.manual_seed`).

    Deviations: of ids whose logits tie at rank `top_k`, as many are kept as fit; transformers keeps all. Settings of
    the network's `generation_config` are not read.

    Args:
        pipeline: a `chronos.ChronosPipeline` of a T5 network, on any device. It is not changed, and its network is
            shared, not copied.

    Returns:
        The pipeline. Its `predict` raises ValueError for a `temperature`, `top_k` or `top_p` out of range.

    Raises:
        TypeError: `pipeline` is another object, such as a ChronosBoltPipeline or Chronos2Pipeline, which do not
            sample, or its network is no T5.
    """
    if not isinstance(pipeline, ChronosPipeline):
        raise TypeError(
            f"pipeline: got {type(pipeline).__name__}, expected a chronos.ChronosPipeline (Chronos-T5), the only "
            "pipeline of chronos that draws sample paths; load it with ChronosPipeline.from_pretrained"
        )
    network = pipeline.model.model
    if not isinstance(network, T5ForConditionalGeneration):
        raise TypeError(
            f"pipeline: got a ChronosPipeline with a {type(network).__name__}, expected a T5ForConditionalGeneration; "
            "other networks have only the stock sampler"
        )
    return ChronosPipeline(tokenizer=pipeline.tokenizer, model=FastChronosModel(pipeline.model.config, network))


class FastChronosModel(ChronosModel):
    """`ChronosModel` whose `forward` calls the sampler of the family chronos-t5."""

    def forward(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor,
        prediction_length: int | None = None,
        num_samples: int | None = None,
        temperature: float | None = None,
        top_k: int | None = None,
        top_p: float | None = None,
    ) -> torch.Tensor:
        """Return sampled ids [series, sample, step]; what is None is as in the config of the model."""
        given = {"temperature": temperature, "top_k": top_k, "top_p": top_p}
        config = replace(self.config, **{name: value for name, value in given.items() if value is not None})
        # transformers refuses these settings too.
        if not config.temperature > 0:
            raise ValueError(f"temperature: got {config.temperature}, expected a number above 0")
        if config.top_k < 0:
            raise ValueError(f"top_k: got {config.top_k}, expected at least 1, or 0 for all ids")
        if not 0 <= config.top_p <= 1:
            raise ValueError(f"top_p: got {config.top_p}, expected a number in [0, 1]")
        samples = self.config.num_samples if num_samples is None else num_samples
        steps = self.config.prediction_length if prediction_length is None else prediction_length
        uniforms = torch.rand(len(input_ids), samples, steps, dtype=torch.float64)
        return sample_ids(self.model, input_ids, attention_mask, uniforms, config)

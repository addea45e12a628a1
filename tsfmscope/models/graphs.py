"""Forecasts as torch modules, which exporters can trace.

They compute what the families' functions of arrays compute, in float64 as well.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float64
from scipy import special
from torch import nn
from torch.overrides import TorchFunctionMode
from transformers.time_series_utils import DistributionOutput

from tsfmscope.errors import ModelError
from tsfmscope.models import moirai_patches, timesfm_patches
from tsfmscope.models.common.scale import HUGE, LARGEST, level_weights

Embed = Callable[[torch.Tensor, torch.Tensor, int], tuple[torch.Tensor, torch.Tensor]]


class BoltGraph(nn.Module):
    """Quantiles [B, Q, H] of contexts [B, C], NaN where a step is missing, by Chronos-Bolt."""

    def __init__(self, network: Any, horizon: int) -> None:
        """Wrap a network of the package chronos."""
        super().__init__()
        self.network, self.horizon = network, horizon

    def forward(self, context: torch.Tensor) -> torch.Tensor:
        """Return the quantiles in the data's units."""
        scaled, factor = divide_huge(context)
        return multiply_back(self.network(context=scaled).quantile_preds[:, :, : self.horizon], factor)


class Chronos2Graph(nn.Module):
    """Quantiles [B, Q, H] of contexts [B, C], NaN where a step is missing, by Chronos-2.

    Every series is a group of its own. Group attention over one series returns its value, so queries and keys of the
    group are left out.
    """

    def __init__(self, network: Any, embed: Embed, horizon: int) -> None:
        """Wrap a network of the package chronos.

        embed: function from patches, masks and the number of horizon patches to the input of block 0 and the mask
        of the attended rows.
        """
        super().__init__()
        self.network, self.embed, self.horizon = network, embed, horizon
        self.ahead = -(-horizon // int(network.chronos_config.output_patch_size))

    def forward(self, context: torch.Tensor) -> torch.Tensor:
        """Return the quantiles in the data's units."""
        network, ahead = self.network, self.ahead
        values, factor = divide_huge(context)
        scaled, loc_scale = network.instance_norm(values)
        masks = torch.nan_to_num(network.patch((~torch.isnan(values)).float()), nan=0.0)
        patches = torch.where(masks > 0, network.patch(scaled), 0.0)
        states, attended = self.embed(patches, masks > 0, ahead)
        at = torch.arange(states.shape[1])[None]
        mask = network.encoder._expand_and_invert_time_attention_mask(attended, states.dtype)
        for block in network.encoder.block:
            over_time, over_group, feed_forward = block.layer
            states = over_time(states, position_ids=at, attention_mask=mask)[0]
            attention = over_group.self_attention
            states = feed_forward(states + attention.o(attention.v(over_group.layer_norm(states))))
        last = network.encoder.final_layer_norm(states)[:, -ahead:]
        flat = network.output_patch_embedding(last)  # [B, T, Q * patch]
        by_patch = flat.unflatten(-1, (network.num_quantiles, -1)).transpose(1, 2)  # [B, Q, T, patch]
        quantiles = network.instance_norm.inverse(by_patch.flatten(1), loc_scale)
        return multiply_back(quantiles.unflatten(1, (network.num_quantiles, -1))[:, :, : self.horizon], factor)


def divide_huge(context: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Divide contexts [B, C] above HUGE by their largest value; return them and the divisors [B, 1].

    `rescale_extreme` divides by a power of two instead, so that results differ by rounding there.
    """
    top = torch.where(torch.isnan(context), 0.0, context).abs().amax(dim=-1, keepdim=True)
    factor = torch.where(top > HUGE, top, 1.0)
    return context / factor, factor


def multiply_back(quantiles: torch.Tensor, factor: torch.Tensor) -> torch.Tensor:
    """Return quantiles [B, Q, H] times the divisors [B, 1], clipped to the range of float32."""
    return (quantiles.double() * factor.double()[:, :, None]).clamp(-LARGEST, LARGEST).float()


class Moirai2Graph(nn.Module):
    """Quantiles [B, Q, H] of contexts [B, C], NaN where a step is missing, by Moirai 2."""

    def __init__(self, network: Any, context: int, horizon: int) -> None:
        """Copy a Moirai2Module of uni2ts, for at most `num_predict_token` patches of horizon."""
        super().__init__()
        self.network, self.horizon = copy.deepcopy(network), horizon
        tokens = -(-context // network.patch_size)
        for block in self.network.encoder.layers:
            rotation = block.self_attn.time_qk_proj.query_proj
            rotation._init_freq(max_len=tokens)
            # The graph keeps no angles of longer contexts.
            rotation.cos, rotation.sin = rotation.cos[:tokens].clone(), rotation.sin[:tokens].clone()
            # The package would compare the number of tokens with that of its angles in every pass.
            rotation._init_freq = _keep_angles

    def forward(self, context: torch.Tensor) -> torch.Tensor:
        """Return the quantiles in the data's units."""
        network, size = self.network, self.network.patch_size
        values = nn.functional.pad(context.double(), (-context.shape[1] % size, 0), value=torch.nan)
        observed = ~torch.isnan(values)
        loc, scale = self._loc_scale(torch.where(observed, values, 0.0), observed)
        filled = causal_means(values)
        patches, masks = filled.unflatten(1, (-1, size)), observed.unflatten(1, (-1, size))
        begun = masks.any(dim=-1).long().cumsum(dim=1) > 0  # [B, T]
        scaled = torch.where(begun[:, :, None], (patches - loc[:, None]) / scale[:, None], 0.0)
        scaled = scaled.clamp(-moirai_patches.LARGEST, moirai_patches.LARGEST).float()
        embedded = network.in_proj(torch.cat((scaled, masks.to(scaled.dtype)), dim=-1))
        sample = begun.long()
        time = (sample.cumsum(dim=1) - 1).clamp_min(0)
        attended = (sample[:, :, None] == sample[:, None]) & (time[:, None] <= time[:, :, None])
        with _ExplicitAttention():
            states = network.encoder(embedded, attended, time_id=time, var_id=torch.zeros_like(sample))
        predicted = network.out_proj(states[:, -1])  # [B, N * Q * P]
        by_patch = predicted.unflatten(-1, (network.num_predict_token, network.num_quantiles, size))
        quantiles = by_patch.transpose(1, 2).flatten(2)[:, :, : self.horizon].double()
        answer: torch.Tensor = (quantiles * scale[:, None] + loc[:, None]).clamp(-LARGEST, LARGEST).float()
        return answer

    def _loc_scale(self, filled: torch.Tensor, observed: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return loc and scale [B, 1], as `moirai_patches` computes them."""
        network = self.network
        if not network.scaling:
            return torch.zeros_like(filled[:, :1]), torch.ones_like(filled[:, :1])
        count = observed.sum(dim=1, keepdim=True)
        loc = filled.sum(dim=1, keepdim=True) / count.clamp_min(1)
        squares = torch.where(observed, filled - loc, 0.0).square().sum(dim=1, keepdim=True)
        return loc, (squares / (count - 1).clamp_min(1) + network.scaler.minimum_scale).sqrt()


def causal_means(steps: torch.Tensor) -> torch.Tensor:
    """Return steps [B, C] with filled gaps, as `moirai_patches.causal_means` does."""
    held, begun = carry_forward(steps)
    since = begun.long().cumsum(dim=1) - 1
    means = torch.where(begun, (held.cumsum(dim=1) - held) / since.clamp_min(1), 0.0)
    return torch.where(torch.isnan(steps), means, steps)


def carry_forward(steps: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return steps [B, C] with the last observed one in place of a missing one, 0 before the first one.

    Return also which steps are not before the first observed one.
    """
    observed = ~torch.isnan(steps)
    last = running_max(torch.where(observed, torch.arange(steps.shape[1]).expand_as(steps), -1))
    begun = last >= 0
    return torch.where(begun, torch.where(observed, steps, 0.0).gather(1, last.clamp_min(0)), 0.0), begun


class _ExplicitAttention(TorchFunctionMode):
    """Compute attention by softmax and products, since ONNX has no attention over the package's five axes."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is not nn.functional.scaled_dot_product_attention:
            return func(*args, **kwargs)
        query, key, value = args
        scores = query @ key.transpose(-2, -1) * (kwargs.get("scale") or query.shape[-1] ** -0.5)
        return (scores + kwargs["attn_mask"]).softmax(dim=-1) @ value


def _keep_angles(max_len: Any) -> None:
    """Take the place of `_init_freq`, whose comparison of tensors cannot be traced; the angles are long enough."""


# Degree of the polynomials of Student's t quantiles. Their error is below 1e-12 at levels from 0.01 to 0.99.
DEGREE = 24


class PatchTSTGraph(nn.Module):
    """Quantiles [B, Q, H] of contexts [B, C], NaN where a step is missing, by PatchTST."""

    steps: torch.Tensor
    normal: torch.Tensor
    student: torch.Tensor

    def __init__(self, network: Any, levels: Sequence[float], context: int, horizon: int) -> None:
        """Wrap a network of transformers; a context shorter than the model's is padded with missing steps."""
        super().__init__()
        config, patchifier = network.config, network.model.patchifier
        self.network, self.horizon, self.levels = network, horizon, len(levels)
        self.pad = int(config.context_length) - context
        starts = np.arange(
            patchifier.sequence_start, int(config.context_length) - patchifier.patch_length + 1, patchifier.patch_stride
        )
        self.register_buffer("steps", torch.from_numpy(starts[:, None] + np.arange(patchifier.patch_length)))
        self.register_buffer("normal", torch.from_numpy(special.ndtri(np.array(levels))))
        self.register_buffer("student", torch.from_numpy(student_coefficients(levels)))

    def forward(self, context: torch.Tensor) -> torch.Tensor:
        """Return the quantiles in the data's units."""
        network = self.network
        values = nn.functional.pad(context.double(), (self.pad, 0), value=torch.nan)
        observed = ~torch.isnan(values)
        filled = torch.where(observed, values, 0.0)[:, :, None]
        scaled, loc, scale = network.model.scaler(filled, observed[:, :, None])
        masked = torch.where(observed, scaled[:, :, 0], 0.0).float()
        encoded = network.model.encoder(patch_input=masked[:, self.steps][:, None]).last_hidden_state
        quantiles = self._quantiles(encoded)[:, :, : self.horizon]
        answer: torch.Tensor = (quantiles * scale + loc).clamp(-LARGEST, LARGEST).float()
        return answer

    def _quantiles(self, encoded: torch.Tensor) -> torch.Tensor:
        """Return quantiles [B, Q, H] of the head's distribution, in scaled units and float64.

        The package's head squeezes an axis that is longer than 1, which torch ignores and ONNX refuses. The head is
        therefore computed from its parts.
        """
        head, squareplus = self.network.head, DistributionOutput.squareplus
        pooled = encoded
        if head.use_cls_token:
            pooled = encoded[:, :, 0]
        elif head.pooling_type == "mean":
            pooled = encoded.mean(dim=2)
        elif head.pooling_type == "max":
            pooled = encoded.amax(dim=2)
        flat = head.flatten(pooled)
        if not self.network.distribution_output:
            point: torch.Tensor = head.projection(flat).double()
            return point.expand(-1, self.levels, -1)
        *df, loc, scale = (projection(flat) for projection in head.projection.proj)  # [B, 1, H]
        spread = squareplus(scale).clamp_min(torch.finfo(scale.dtype).eps).double()
        if df:
            standard = student_quantiles((2.0 + squareplus(df[0])).double(), self.student)
        else:
            standard = self.normal[None, :, None]
        quantiles: torch.Tensor = loc.double() + spread * standard
        return quantiles


def student_coefficients(levels: Sequence[float]) -> Float64[np.ndarray, "degree quantile"]:
    """Return Chebyshev coefficients of Student's t quantiles as functions of 4 / df - 1.

    The degrees of freedom are at least 2. ONNX has no inverse of Student's distribution. As a function of 1 / df the
    quantile is smooth, and that of the normal distribution is its value at 0.
    """
    nodes = np.cos(np.pi * (np.arange(DEGREE + 1) + 0.5) / (DEGREE + 1))
    df = 4 / (nodes + 1)
    return np.polynomial.chebyshev.chebfit(nodes, special.stdtrit(df[:, None], np.array(levels)), DEGREE)


def student_quantiles(df: torch.Tensor, coefficients: torch.Tensor) -> torch.Tensor:
    """Return quantiles [B, Q, H] of degrees of freedom [B, 1, H], all at least 2."""
    point = 4 / df - 1
    polynomials = [torch.ones_like(point), point]
    for _ in range(2, len(coefficients)):
        polynomials.append(2 * point * polynomials[-1] - polynomials[-2])
    return coefficients.T @ torch.cat(polynomials, dim=1)


class PatchTSTFMGraph(nn.Module):
    """Quantiles [B, Q, H] of contexts [B, C], NaN where a step is missing, by PatchTST-FM."""

    def __init__(
        self, network: Any, bounds: tuple[float, float], window: int, shortest: int, context: int, horizon: int
    ) -> None:
        """Wrap a network whose context and forecast share `window` steps; it forecasts at least `shortest` steps.

        bounds: deviation up to which the scale is 1, and the largest scaled forecast.
        """
        super().__init__()
        self.network, self.horizon = network, horizon
        self.least_scale, self.largest_scaled = bounds
        self.ahead = max(horizon, shortest)
        self.kept = min(context, window - self.ahead)

    def forward(self, context: torch.Tensor) -> torch.Tensor:
        """Return the quantiles in the data's units."""
        network, size = self.network, self.network.size
        values = context[:, context.shape[1] - self.kept :].double()
        observed = ~torch.isnan(values)
        loc, scale = _patch_loc_scale(values, observed, self.least_scale)
        scaled = _asinh((torch.where(observed, values, loc) - loc) / scale)
        padded = (-(self.kept + self.ahead) % size, self.ahead)
        patches, masks = (
            nn.functional.pad(part.float(), padded).unflatten(1, (-1, size)) for part in (scaled, observed)
        )
        begun = nn.functional.pad(running_max(observed.long()), (padded[0], 0))
        real = nn.functional.pad(begun, (0, self.ahead), value=1).unflatten(1, (-1, size)).sum(dim=-1)  # [B, T]
        attended = (10 * (size - real) <= 9 * size)[:, None, None]
        vectors = network.pos_embed["embedding"].weight
        states = network.in_layer(torch.cat((patches, masks), dim=-1)) + vectors[len(vectors) - patches.shape[1] :]
        for block in network.blocks:
            states = block(states, attended)
        quantiles = network.quantiles(states).flatten(2)[:, :, -self.ahead :][:, :, : self.horizon].double()
        bounded = quantiles.clamp(-self.largest_scaled, self.largest_scaled)
        answer: torch.Tensor = (_sinh(bounded) * scale[:, None] + loc[:, None]).clamp(-LARGEST, LARGEST).float()
        return answer


def _asinh(values: torch.Tensor) -> torch.Tensor:
    """Return asinh from a logarithm, since onnxruntime has none for float64."""
    size = values.abs()
    return values.sign() * (size + (size.square() + 1).sqrt()).log()


def _sinh(values: torch.Tensor) -> torch.Tensor:
    """Return sinh from exponentials, since onnxruntime has none for float64."""
    return (values.exp() - (-values).exp()) / 2


def _patch_loc_scale(values: torch.Tensor, observed: torch.Tensor, least: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Return loc and scale [B, 1], as `patchtst_fm.scale_and_cut` computes them."""
    count = observed.sum(dim=1, keepdim=True).clamp_min(1)
    filled = torch.where(observed, values, 0.0)
    loc = filled.sum(dim=1, keepdim=True) / count
    low = torch.where(observed, values, torch.inf).amin(dim=1, keepdim=True)
    high = torch.where(observed, values, -torch.inf).amax(dim=1, keepdim=True)
    loc = torch.where(low == high, low, loc)
    spread = (torch.where(observed, values - loc, 0.0).square().sum(dim=1, keepdim=True) / count).sqrt()
    return loc, torch.where(spread > least, spread, 1.0)


class TTMGraph(nn.Module):
    """Quantiles [B, Q, H] of contexts [B, C], NaN where a step is missing, by TTM.

    All are its point.
    """

    def __init__(
        self, network: Any, config: Mapping[str, Any], variance: float, levels: int, context: int, horizon: int
    ) -> None:
        """Wrap a network of that config; a context shorter than the model's is padded with missing steps.

        variance: added to that of a context. ModelError for a model that reads the sampling rate.
        """
        super().__init__()
        if config["resolution_prefix_tuning"]:
            raise ModelError(
                "family ttm: expected a forecast of the context alone, found one that depends on the sampling rate "
                "(resolution_prefix_tuning); export without --onnx"
            )
        self.network, self.variance, self.levels, self.horizon = network, variance, levels, horizon
        self.size, self.pad = config["patch_length"], config["context_length"] - context

    def forward(self, context: torch.Tensor) -> torch.Tensor:
        """Return the quantiles in the data's units."""
        values = nn.functional.pad(context.double(), (self.pad, 0), value=torch.nan)
        observed = ~torch.isnan(values)
        count = observed.sum(dim=1, keepdim=True).clamp_min(1)
        loc = torch.where(observed, values, 0.0).sum(dim=1, keepdim=True) / count
        centred = torch.where(observed, values - loc, 0.0)
        scale = (centred.square().sum(dim=1, keepdim=True) / count + self.variance).sqrt()
        # First steps that fill no patch are not read, and neither is the frequency.
        scaled = (centred / scale)[:, values.shape[1] % self.size :].float()
        point = self.network(scaled.unflatten(1, (-1, self.size)), None)[:, : self.horizon].double()
        answer: torch.Tensor = (point * scale + loc).clamp(-LARGEST, LARGEST).float()
        return answer[:, None].expand(-1, self.levels, -1)


class Toto2Graph(nn.Module):
    """Quantiles [B, Q, H] of contexts [B, C], NaN where a step is missing, by Toto 2.0.

    Every series is a group of its own. Attention of a variate layer over one series returns its value, so queries and
    keys of these layers are left out.
    """

    def __init__(self, network: Any, bounds: tuple[float, float], ahead: int, context: int, horizon: int) -> None:
        """Wrap a network that reads `ahead` masked patches after the context.

        bounds: least scale, and largest scaled forecast.
        """
        super().__init__()
        self.least_scale, self.largest_scaled = bounds
        self.network, self.ahead, self.horizon = network, ahead, horizon
        self.rotation = network.rotate_patches(-(-context // network.size) + ahead)

    def forward(self, context: torch.Tensor) -> torch.Tensor:
        """Return the quantiles in the data's units."""
        network, size = self.network, self.network.size
        values = nn.functional.pad(context.double(), (-context.shape[1] % size, 0), value=torch.nan)
        steps = torch.arange(values.shape[1])
        # The last patch counts as observed.
        observed = ~torch.isnan(values) | (steps >= len(steps) - size)
        filled = torch.where(observed, carry_forward(values)[0], 0.0)
        patches, masks = filled.unflatten(1, (-1, size)), observed.unflatten(1, (-1, size))
        loc, scale = (
            part.unflatten(1, (-1, size))[:, :, -1:] for part in running_scale(filled, observed, self.least_scale)
        )
        scaled = torch.where(masks, _asinh((patches - loc) / scale), 0.0).float()
        after = (0, 0, 0, self.ahead)
        unknown = nn.functional.pad(1.0 - masks.float(), after, value=1.0)
        states = network.patch_proj(torch.cat((nn.functional.pad(scaled, after), unknown), dim=-1))
        attended = nn.functional.pad(masks.any(dim=-1).long(), (0, self.ahead), value=1)
        at = torch.arange(states.shape[1])
        mask = ((attended[:, :, None] == attended[:, None]) & (at <= at[:, None]))[:, None]
        for block in network.blocks:
            normed = block.norm1(states)
            added = block.attn.read_itself(normed) if block.attn.is_variate else block.attn(normed, mask, self.rotation)
            states = block.add(states, added)
        quantiles = network.quantiles(network.transformer.out_norm(states[:, -1 - self.ahead :]))
        ordered = quantiles.flatten(1, 2)[:, : self.horizon].sort(dim=-1).values.transpose(1, 2)  # [B, Q, H]
        bounded = ordered.double().clamp(-self.largest_scaled, self.largest_scaled)
        answer: torch.Tensor = (_sinh(bounded) * scale[:, -1:] + loc[:, -1:]).clamp(-LARGEST, LARGEST).float()
        return answer


def running_scale(values: torch.Tensor, observed: torch.Tensor, least: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Return loc and scale of the steps so far, [B, C] each, as `toto_2.scale_and_cut` computes them.

    values: 0 where a step is not observed. least: smallest scale.
    """
    count = observed.long().cumsum(dim=1)
    first = first_observed(values, count, observed)
    are_equal = running_max((observed & (values != first)).long()) == 0
    loc = torch.where(are_equal & (count > 0), first, values.cumsum(dim=1) / count.clamp_min(1))
    before = nn.functional.pad(loc[:, :-1], (1, 0))
    squares = torch.where(observed, (values - before) * (values - loc), 0.0).cumsum(dim=1)
    scale = (squares.clamp_min(0.0) / (count - 1).clamp_min(1)).sqrt()
    return loc, scale.clamp_min(least)


def first_observed(values: torch.Tensor, count: torch.Tensor, observed: torch.Tensor) -> torch.Tensor:
    """Return the first observed step [B, 1] of values [B, C], 0 without any; count: observed steps so far."""
    return torch.where(observed & (count == 1), values, 0.0).sum(dim=1, keepdim=True)


class FlowStateGraph(nn.Module):
    """Quantiles [B, Q, H] of contexts [B, C], NaN where a step is missing, by FlowState."""

    basis: torch.Tensor
    weights: torch.Tensor
    powers: torch.Tensor

    def __init__(
        self, network: Any, levels: Sequence[float], variance: float, factor: float, steps: tuple[int, int, int],
        horizon: int,
    ) -> None:  # fmt: skip
        """Copy a network, with a scale factor of the time axis.

        levels: of its quantiles. variance: the least of the steps so far. steps: read from the context, masked
        after it, and forecast by a row.
        """
        super().__init__()
        self.network, self.variance, self.factor = copy.deepcopy(network), variance, factor
        self.horizon = horizon
        self.kept, self.masked, self.patch = steps
        # Each row forecasts a patch. Of that of the last row, the steps after the others are kept.
        self.rows = [self.kept - 1 + row for row in (*range(0, self.masked, self.patch), self.masked)]
        for layer in self.network.layers:
            layer.ssm = S5Graph(layer.ssm, factor, self.kept + self.masked)
        layer.ssm.rows = self.rows
        # One tensor for all layers: onnxruntime makes the matrices when it opens the model, so they take no bytes.
        self.register_buffer("powers", torch.stack([layer.ssm.powers for layer in self.network.layers]))
        self.register_buffer("basis", network.decoder.basis(self.patch, factor))
        # The levels of a sample of as many numbers as there are quantiles, as in the package.
        order = np.linspace(0, 1, len(levels)).tolist()
        self.register_buffer("weights", torch.from_numpy(level_weights(order, levels).T.copy()))

    def forward(self, context: torch.Tensor) -> torch.Tensor:
        """Return the quantiles in the data's units."""
        network, first = self.network, context.shape[1] - self.kept
        begun = running_max((~torch.isnan(context)).long())[:, first:]
        scaled, missing, loc, scale = scale_causally(context[:, first:].double(), self.variance)
        after = (0, self.masked)
        values, missing = nn.functional.pad(scaled, after), nn.functional.pad(missing, after, value=1.0)
        attended = nn.functional.pad(begun, after, value=1)[:, :, None].float()
        states = network.embed["embed"](torch.stack((values, missing), dim=-1))
        within = self.powers[..., toeplitz_places(FIRST)].unflatten(2, (2 * FIRST, 2 * FIRST))
        for layer, matrices in zip(network.layers, within, strict=True):
            mixed = layer.ssm(states, attended, matrices)
            states = states if layer.ssm.rows is None else states[:, self.rows]
            # Of two axes, a product and its bias are one operator of ONNX.
            states = layer.add_output(states.flatten(0, 1), mixed).unflatten(0, (-1, states.shape[1]))
        decoder = network.decoder
        coefficients = decoder.lin(states)
        patches = coefficients.unflatten(-1, (decoder.num_quantiles, decoder.size)) @ self.basis.T  # [B, S, Q, P]
        *whole, last = patches.unbind(dim=1)
        quantiles = torch.cat((*whole, last[:, :, len(whole) * self.patch - self.masked :]), dim=-1)
        ordered = quantiles[:, :, : self.horizon].sort(dim=1).values.double()
        answer: torch.Tensor = self.weights @ ordered * scale[:, None] + loc[:, None]
        return answer.clamp(-LARGEST, LARGEST).float()


def scale_causally(values: torch.Tensor, least: float) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Scale steps [B, C] as `flowstate.scale_causally` does.

    Return the scaled steps, 1 where one is missing, and loc and scale [B, 1] of all steps. least: smallest variance.
    """
    observed = ~torch.isnan(values)
    count = observed.long().cumsum(dim=1)
    first = first_observed(values, count, observed)
    count = count.clamp_min(1)
    centred = torch.where(observed, values - first, 0.0)
    mean = centred.cumsum(dim=1) / count
    deviation = torch.where(observed, centred - mean, 0.0)
    scale = (deviation.square().cumsum(dim=1) / count).clamp_min(least).sqrt()
    return (deviation / scale).float(), 1.0 - observed.float(), first + mean[:, -1:], scale[:, -1:]


# Steps of a chunk of the recurrence of an S5 block, and chunks of a chunk of these, and so on.
FIRST, CHUNK = 16, 4


class S5Graph(nn.Module):
    """S5 block of FlowState in real numbers, since ONNX has no complex ones; a complex number is a pair."""

    inputs: torch.Tensor
    outputs: torch.Tensor

    def __init__(self, block: Any, factor: float, steps: int) -> None:
        """Compute the matrices of a block for a scale factor and this number of steps."""
        super().__init__()
        self.output_gate, self.D, self.steps = block.output_gate, block.D, steps
        # Rows to return; None: all.
        self.rows: list[int] | None = None
        rate, inputs, outputs = block.discretise(factor)
        self.register_buffer("inputs", inputs.detach())
        self.register_buffer("outputs", outputs.detach())
        rate = rate.detach().to(torch.complex128)
        powers = torch.exp(rate[:, None] * torch.arange(FIRST + 1))
        inner, zero = powers[:, :-1], torch.zeros(len(rate), 1)
        self.powers = torch.cat((inner.real, inner.imag, -inner.imag, zero), dim=1).float()
        self.scans = nn.ParameterList([nn.Parameter(_as_pairs(powers[:, None, 1:]), requires_grad=False)])
        at, stride = torch.arange(CHUNK), FIRST
        while stride < steps:
            lag = at - at[:, None]
            within = torch.where(lag >= 0, torch.exp(rate[:, None, None] * stride * lag.clamp_min(0)), 0.0)
            across = torch.exp(rate[:, None, None] * stride * (at + 1))
            self.scans.extend(nn.Parameter(_as_pairs(part), requires_grad=False) for part in (within, across))
            stride *= CHUNK

    def forward(self, states: torch.Tensor, attended: torch.Tensor, matrices: torch.Tensor) -> torch.Tensor:
        """Return the output [B T, d] of states [B, T, d].

        attended: 0 for rows that are no input of the recurrence. matrices: [N, 2 FIRST, 2 FIRST], of a chunk.
        """
        padded = states * attended
        if self.steps % FIRST:
            padded = nn.functional.pad(padded, (0, 0, 0, -self.steps % FIRST))
        chunks = padded.unflatten(1, (-1, FIRST)).transpose(2, 3)  # [B, C, d, FIRST]
        count = chunks.shape[1]
        projected = (self.inputs @ chunks).unflatten(2, (-1, 2)).flatten(3).flatten(0, 1)  # [B C, N, 2 FIRST]
        hidden = projected.transpose(0, 1) @ matrices
        across, *coarser = self.scans
        if coarser:
            last = _scan(hidden[..., -2:].unflatten(1, (-1, count)), coarser)
            hidden = hidden + nn.functional.pad(last[:, :, :-1], (0, 0, 1, 0)).flatten(1, 2) @ across
        by_step = hidden.unflatten(2, (FIRST, 2)).permute(1, 2, 0, 3).flatten(2).unflatten(0, (-1, count)).flatten(1, 2)
        if self.rows is not None:
            by_step, states = by_step[:, self.rows], states[:, self.rows]
        elif self.steps % FIRST:
            by_step = by_step[:, : self.steps]
        output = nn.functional.linear(by_step.flatten(0, 1), self.outputs)
        if self.output_gate is not None:
            output = torch.sigmoid(self.output_gate(output)) * output
        answer: torch.Tensor = output + self.D * states.flatten(0, 1)
        return answer


def toeplitz_places(size: int) -> list[int]:
    """Return the places in `powers` of the entries of a chunk's matrix, as one axis; rows are real, then imaginary."""
    lag = np.arange(size) - np.arange(size)[:, None]
    kinds = np.array([[0, 1], [2, 0]])[:, None, None]
    return np.where(lag[None, :, :, None] >= 0, kinds * size + lag[None, :, :, None], 3 * size).ravel().tolist()


def _as_pairs(matrices: torch.Tensor) -> torch.Tensor:
    """Return complex matrices [N, rows, columns] as real ones [N, 2 rows, 2 columns], which multiply from the right."""
    real, imag = matrices.real, matrices.imag
    pairs = torch.stack((torch.stack((real, imag), dim=-1), torch.stack((-imag, real), dim=-1)), dim=2)
    flat: torch.Tensor = pairs.flatten(3).flatten(1, 2).float()
    return flat


def _scan(inputs: torch.Tensor, scans: Sequence[torch.Tensor]) -> torch.Tensor:
    """Return all states of the recurrence of inputs [N, B, T, 2]: of chunks, then the last states of these.

    scans: matrices of `S5Graph`, two for each level of chunks.
    """
    within, across, *coarser = scans
    steps = inputs.shape[2]
    chunks = nn.functional.pad(inputs, (0, 0, 0, -steps % CHUNK)).unflatten(2, (-1, CHUNK)).flatten(3)
    states = chunks @ within[:, None]  # [N, B, chunk, 2 * CHUNK]
    if coarser:
        last = _scan(states[..., -2:], coarser)
        states = states + nn.functional.pad(last[:, :, :-1], (0, 0, 1, 0)) @ across[:, None]
    answer: torch.Tensor = states.unflatten(3, (-1, 2)).flatten(2, 3)[:, :, :steps]
    return answer


# Function from patches and masks [B, T, patch] to scaled patches, and loc and scale [B] of the last one.
Scale = Callable[[torch.Tensor, torch.Tensor], tuple[torch.Tensor, torch.Tensor, torch.Tensor]]


class TimesFMGraph(nn.Module):
    """Quantiles [B, Q, H] of contexts [B, C], NaN where a step is missing, and frequency ids [B], by TimesFM."""

    def __init__(self, model: Any, horizon: int) -> None:
        """Wrap a model of TimesFM, whose network is of transformers."""
        super().__init__()
        self.network, self.model, self.horizon = model.network, model, horizon
        self.size = int(model.network.config.patch_length)

    def forward(self, context: torch.Tensor, frequency: torch.Tensor | None = None) -> torch.Tensor:
        """Return the quantiles in the data's units; frequency: ids, for a model that reads them."""
        steps, masked = fill_gaps(context.double())
        left = -context.shape[1] % self.size
        patches = nn.functional.pad(steps, (left, 0)).unflatten(1, (-1, self.size))
        masks = nn.functional.pad(masked, (left, 0), value=True).unflatten(1, (-1, self.size))
        scaled, loc, scale = self.model.traced_scale()(patches, masks)
        ids = masks[:, 0, 0].long() * 0 if frequency is None else frequency
        inputs = torch.where(masks, 0.0, scaled.clamp(-timesfm_patches.LARGEST, timesfm_patches.LARGEST)).float()
        output = self.model.run_network(inputs, masks, ids)  # [B, H, 1 + Q]
        values = output.double() * scale[:, None, None] + loc[:, None, None]
        quantiles: torch.Tensor = values[:, : self.horizon, 1:].transpose(1, 2)
        if self.model.keeps_sign:
            negative = (context < 0).any(dim=1)[:, None, None]
            quantiles = torch.where(negative, quantiles, quantiles.clamp(min=0.0))
        return quantiles.clamp(-LARGEST, LARGEST).float()


def fill_gaps(context: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Interpolate missing steps of contexts [B, C], and return the steps before the first observed one as a mask.

    Missing steps at the end repeat the last observed one; masked steps are 0.
    """
    length = context.shape[1]
    observed = ~torch.isnan(context)
    at = torch.arange(length).expand_as(context)
    before = running_max(torch.where(observed, at, -1))
    # The same from the end: the position of the next observed step, or `length`.
    after = length - 1 - running_max(torch.where(observed, length - 1 - at, -1).flip(1)).flip(1)
    values = torch.where(observed, context, 0.0)
    first = values.gather(1, before.clamp(min=0))
    last = values.gather(1, after.clamp(max=length - 1))
    share = (at - before).double() / (after - before).clamp(min=1).double()
    between = torch.where(after < length, first + (last - first) * share, first)
    masked = before < 0
    return torch.where(masked, 0.0, torch.where(observed, values, between)), masked


def scale_by_first_patch(
    tolerance: float, patches: torch.Tensor, masks: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Scale patches [B, T, patch] as `patches.scale_by_first_patch` does; return also loc and scale [B]."""
    count, mean, deviation = _moments(patches, masks)
    enough = count >= timesfm_patches.ENOUGH
    chosen = enough & (enough.long().cumsum(dim=1) == 1)
    is_last = torch.arange(patches.shape[1]) == patches.shape[1] - 1
    chosen = chosen | (~enough.any(dim=1, keepdim=True) & is_last)
    loc, scale = (torch.where(chosen, part, 0.0).sum(dim=1) for part in (mean, deviation))
    scale = scale.clamp(min=tolerance)
    return (patches - loc[:, None, None]) / scale[:, None, None], loc, scale


def scale_running(patches: torch.Tensor, masks: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Scale patches [B, T, patch] as `patches.scale_running` does; return also loc and scale [B] of the last one."""
    count, centre, spread = _moments(patches.flatten(1), masks.flatten(1))
    spread = spread * torch.sqrt(count / (count - 1).clamp(min=1))
    values = torch.where(masks, 0.0, (patches - centre[:, None, None]) / _safe(spread)[:, None, None])
    count, mean, deviation = _moments(values, masks)
    earlier = torch.ones(patches.shape[1], patches.shape[1], dtype=torch.float64).tril()
    n_seen = (count @ earlier.T).clamp(min=1)
    loc = (count * mean) @ earlier.T / n_seen
    # [B, T, earlier T]
    squares = deviation[:, None] ** 2 + (mean[:, None] - loc[:, :, None]) ** 2
    scale = torch.sqrt((count[:, None] * earlier * squares).sum(dim=2) / n_seen)
    scaled = (values - loc[:, :, None]) / _safe(scale)[:, :, None]
    return scaled, centre + spread * loc[:, -1], spread * scale[:, -1]


def _moments(values: torch.Tensor, masks: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return number, mean and standard deviation of unmasked values over the last axis; 0 without any."""
    count = (~masks).double().sum(dim=-1)
    divisor = count.clamp(min=1)
    mean = torch.where(masks, 0.0, values).sum(dim=-1) / divisor
    squares = torch.where(masks, 0.0, (values - mean[..., None]) ** 2).sum(dim=-1)
    return count, mean, torch.sqrt(squares / divisor)


def _safe(scale: torch.Tensor) -> torch.Tensor:
    return torch.where(scale < timesfm_patches.TOLERANCE, 1.0, scale)


def running_max(values: torch.Tensor) -> torch.Tensor:
    """Return the running maximum of [B, C], whose values are at least -1.

    It takes log2(C) steps. ONNX has no operator for it.
    """
    shift = 1
    while shift < values.shape[1]:
        values = torch.maximum(values, nn.functional.pad(values[:, :-shift], (shift, 0), value=-1))
        shift *= 2
    return values

"""Other ways to make attention smaller, for bench/compression_race.py, in place: removal, sharing, slicing.

Basis Sharing (Wang et al., ICLR 2025; arXiv 2410.03765 and its public code, TUDa-HWAI/Basis_Sharing). The query
matrices of two consecutive layers of one stack and kind share one basis, and so do their keys and their values. With S
the Cholesky factor of the second moments of their inputs, summed over both layers, the SVD of S [W_1ᵀ, W_2ᵀ] is
truncated; r(in + 2 out) numbers are stored. An output matrix, and the last layer of an odd number, have a basis of
their own, which is the truncation of SVD-LLM. All matrices keep the same share of their parameters. From 40 % removed
on, the coefficients are fitted to the inputs of the compressed model, as in the authors' configurations of LLaMA-7B.
Deviations: the second moments are those of `svd-llm` in this race (tokens with a gradient), and matrices without effect
get rank 1, as with all methods here. Cross-attention, which the authors' models lack, is paired like self-attention.

SliceGPT (Ashkboos et al. 2024; arXiv 2401.15024 and its public code, microsoft/TransformerCompression), as an exact
simulation. It rotates the residual stream to its principal components before every sublayer and keeps the first k of
them. The sliced model is equal to the dense one whose stream x becomes P x before every sublayer, P being the
projection on these components: the branch reads norm(P x), and the stream continues with P x plus the branch, since
rotations keep norms. A hook of each norm projects its input, and a hook of the branch's last Linear adds P x - x to its
output. A LayerNorm's mean is subtracted from the stream too, as the authors do when they make it an RMSNorm. As in
their code, the components are computed sublayer by sublayer on the signals of the model that is sliced so far, from
second moments that are not centred, without padding. k is one share of the width. The last branch of a stack keeps its
full width. MLPs and embeddings are sliced too: k is the largest at which the whole sliced model, with its shortcut
matrices, has no more parameters than the dense model whose attention alone has the given size.
It is defined for blocks of the form x + branch(norm(x)) with one kind of norm. So it is not for TimesFM (RMSNorm before
attention, LayerNorm before MLPs: one stream cannot be centred for one of them alone), TimesFM 2.5 (a norm with scales
follows each branch) and Totem (norms after the sums). PatchTST's BatchNorm is affine when it forecasts, and is absorbed
like the scales of the other norms.
Deviations: k is not rounded to multiples of 8; the keys and values of cross-attention read the encoder's full last
states, as the output head does.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import nn

from bench.race_matrices import Calibration, Statistics, gather_gradients, one_share, root
from tsfmscope.compression.budget import BudgetError
from tsfmscope.compression.candidates import Candidate, Factors, count_parameters, inert_matrices, weighted_factors
from tsfmscope.compression.fidelity import last_states, window_errors
from tsfmscope.compression.outputs import loss_batches
from tsfmscope.compression.truncation import ranks_by_budget
from tsfmscope.errors import ModelError
from tsfmscope.models.base import Family
from tsfmscope.models.common.attention import AttentionLayer
from tsfmscope.models.common.capture import capture
from tsfmscope.models.types import TokenKind

# Layers that share a basis, and the largest size at which coefficients are fitted (authors' configurations).
GROUP, FITTED = 2, 0.6
# Names of the last Linear of a branch that is sliced.
OUTPUTS = ("o", "wo", "out_proj", "o_proj", "fc2", "3")


def prune_heads(model: Family, size: float, _: Calibration) -> None:
    """Set the output matrices of heads to zero, those with the smallest stable rank first, in place.

    A head counts as one share of its layer's parameters. One head of every layer stays.
    """
    layers = list(model.attentions())
    ranks = []
    for number, layer in enumerate(layers):
        read = layer.read()
        shared = layer.heads // layer.groups
        for head in range(layer.heads):
            values = np.linalg.svd(read.o[head] @ read.v[head // shared], compute_uv=False)
            ranks.append((float(np.square(values).sum() / max(values[0] ** 2, 1e-30)), number, head))
    total = remaining = float(count_parameters(layers))
    left = [layer.heads for layer in layers]
    for _rank, number, head in sorted(ranks):
        layer = layers[number]
        if remaining <= size * total:
            return
        if left[number] > 1:
            _zero(layer.linear("o").weight, layer.heads, head)
            left[number] -= 1
            remaining -= count_parameters([layer]) / layer.heads
    if remaining > size * total:
        raise BudgetError(f"{size}: one head of every layer has more")


def drop_layers(model: Family, size: float, data: Calibration) -> None:
    """Set the output matrices of whole layers to zero, those with the least effect on the last states first."""
    layers = list(model.attentions())
    effects = []
    for number in range(len(layers)):
        trial = copy.deepcopy(model)
        _zero(list(trial.attentions())[number].linear("o").weight, 1, 0)
        errors = [np.nanmean(np.square(window_errors(trial, last_states(model, part), part))) for part in data.tokens]
        effects.append((float(np.mean(errors)), number))
    total = remaining = count_parameters(layers)
    for _effect, number in sorted(effects):
        if remaining <= size * total:
            return
        _zero(layers[number].linear("o").weight, 1, 0)
        remaining -= count_parameters([layers[number]])


def _zero(weight: torch.Tensor, heads: int, head: int) -> None:
    with torch.no_grad():
        weight.view(len(weight), heads, -1)[:, head] = 0


class Group(NamedTuple):
    """Matrices with one name (q, k, v or o) of layers that share a basis."""

    layers: tuple[AttentionLayer, ...]
    matrix: str

    def weights(self) -> Float[np.ndarray, "rows in"]:
        """Return the matrices of all layers, one below the other."""
        return np.concatenate([layer.linear(self.matrix).weight.detach().double().numpy() for layer in self.layers])

    def inputs(self, statistics: Statistics) -> Float[np.ndarray, "in in"]:
        """Return the second moments of the inputs, summed over the layers.

        Queries and keys of self-attention read the inputs of the values, so the authors store one matrix for them.
        """
        from_values = self.matrix == "k" or (self.matrix == "q" and self.layers[0].kind != "cross")
        name = "v" if from_values else self.matrix
        return np.sum([statistics[layer.name][name].inputs for layer in self.layers], axis=0)

    def write(self, weights: Float[np.ndarray, "rows in"]) -> None:
        """Set the matrices of all layers."""
        for layer, weight in zip(self.layers, np.split(weights, len(self.layers)), strict=True):
            with torch.no_grad():
                layer.linear(self.matrix).weight.copy_(torch.from_numpy(weight))


def share_bases(model: Family, size: float, data: Calibration) -> None:
    """Replace the attention matrices, in place, by products with shared bases that have `size` of the parameters.

    BudgetError if rank 1 of every basis has more.
    """
    layers, idle = list(model.attentions()), inert_matrices(model, univariate=False)
    groups = [Group(part, matrix) for part in pairs(layers) for matrix in "qkv"]
    groups += [Group((layer,), "o") for layer in layers]
    statistics = data.statistics
    factors = [shared_factors(group.weights(), group.inputs(statistics)) for group in groups]
    candidates = []
    for group, product in zip(groups, factors, strict=True):
        first = group.layers[0]
        is_idle = (first.stack, first.kind, group.matrix) in idle
        candidates.append(_candidate(group, product, is_idle=is_idle))
    ranks = ranks_by_budget(size, candidates, layers, partial(one_share, candidates))
    chosen = [
        (group, *product.truncate(rank))
        for group, product, candidate, rank in zip(groups, factors, candidates, ranks, strict=True)
        if rank < candidate.full
    ]
    originals = [group.weights() for group, _, _ in chosen]
    for group, left, right in chosen:
        group.write(left @ right)
    if size <= FITTED:
        statistics = gather_gradients(model, data.windows)
        # All moments are those of the model before any fit, as in the authors' code.
        for (group, left, right), weights in zip(chosen, originals, strict=True):
            group.write(fitted_coefficients(weights, left, right, group.inputs(statistics)) @ right)


def pairs(layers: Sequence[AttentionLayer]) -> Iterator[tuple[AttentionLayer, ...]]:
    """Yield groups of GROUP consecutive layers of one stack and kind; the last one may be smaller."""
    by_kind: dict[tuple[str, str], list[AttentionLayer]] = {}
    for layer in layers:
        by_kind.setdefault((layer.stack, layer.kind), []).append(layer)
    for members in by_kind.values():
        for start in range(0, len(members), GROUP):
            yield tuple(members[start : start + GROUP])


def shared_factors(weights: Float[np.ndarray, "rows in"], inputs: Float[np.ndarray, "in in"]) -> Factors:
    """Return coefficients and bases of stacked matrices, in order of importance.

    The authors' S⁻¹ U Σ Vᵀ, with U Σ Vᵀ = S Wᵀ, is the transpose of V Vᵀ W, which needs no inverse.
    """
    return weighted_factors(weights, root(inputs))


def fitted_coefficients(
    weights: Float[np.ndarray, "rows in"],
    coefficients: Float[np.ndarray, "rows rank"],
    basis: Float[np.ndarray, "rank in"],
    inputs: Float[np.ndarray, "in in"],
) -> Float[np.ndarray, "rows rank"]:
    """Return the coefficients with the least squared error of the outputs for inputs of these second moments.

    The authors invert B X Bᵀ; least squares give the same where it is invertible. Without inputs nothing is fitted.
    """
    if not inputs.any():
        return coefficients
    scale = root(inputs)
    fitted: np.ndarray = np.linalg.lstsq(scale @ basis.T, scale @ weights.T, rcond=None)[0].T
    return fitted


def _candidate(group: Group, factors: Factors, *, is_idle: bool) -> Candidate:
    rows, columns = group.weights().shape
    full = min(rows, columns)
    costs = np.minimum(np.arange(1, full + 1) * (rows + columns), rows * columns)
    costs[-1] = before = rows * columns
    return Candidate(group.layers[0], (group.matrix,), [factors], full, costs, before, [0.0 if is_idle else 1.0])


class Sublayer(NamedTuple):
    """Norm and branch: the Linears that read the norm's output, and the one whose output joins the stream.

    tokens_first: whether tokens stand before windows (group attention of Chronos-2).
    """

    norm: nn.Module
    inputs: tuple[nn.Linear, ...]
    output: nn.Linear
    tokens_first: bool = False


# Yields batches of rows [N, d] of the input of a sublayer's norm.
Signals = Callable[[Sublayer], Iterator[torch.Tensor]]


class Stream(NamedTuple):
    """Residual stream of a stack: its width, the parameters that make it, and its sublayers in order."""

    name: str
    width: int
    entries: tuple[nn.Parameter, ...]
    sublayers: tuple[Sublayer, ...]


def slice_residual(model: Family, size: float, data: Calibration) -> None:
    """Slice the residual streams of a model in place; ModelError if it is not defined for the family.

    BudgetError if even one component of every stream has more than the parameters that are left.
    """
    streams = residual_streams(model)
    total = sum(parameter.numel() for parameter in model.network.parameters())
    layers = list(model.attentions())
    budget = total - (1 - size) * count_parameters(layers)
    widest, narrowest = (choose(stream.width for stream in streams) for choose in (max, min))
    shares = np.arange(1, widest) / widest
    counts = {share: total + sum(change(stream, int(share * stream.width)) for stream in streams) for share in shares}
    fitting = [share for share, count in counts.items() if count <= budget and share * narrowest >= 1]
    if not fitting:
        raise BudgetError(f"{size}: got {int(budget)} parameters, expected at least {min(counts.values())}")
    for stream in streams:
        signals = _signals(model, stream, data)
        slice_stream(stream.sublayers, int(max(fitting) * stream.width), signals)


def slice_stream(sublayers: Sequence[Sublayer], width: int, signals: Signals) -> list[Float[np.ndarray, "d width"]]:
    """Register the hooks that slice a stream to `width` components; return the components of every sublayer.

    signals: is called for one sublayer after the other, when those before have their hooks.
    """
    found = []
    for sublayer in sublayers:
        moments: Any = 0.0
        for rows in signals(sublayer):
            exact = _centred(sublayer.norm, rows.double())
            moments = moments + exact.T @ exact
        directions = leading_directions(moments.numpy(), width)
        _project(sublayer, directions)
        found.append(directions)
    return found


def leading_directions(moments: Float[np.ndarray, "d d"], width: int) -> Float[np.ndarray, "d width"]:
    """Return the eigenvectors of the largest eigenvalues, largest first."""
    _, vectors = np.linalg.eigh(moments)
    directions: np.ndarray = vectors[:, ::-1][:, :width].copy()
    return directions


def change(stream: Stream, width: int) -> int:
    """Return by how many parameters a stream changes if it is sliced to this width.

    Norms are absorbed. A branch without bias gets one from a norm with bias. Every sublayer gets a shortcut matrix.
    """
    lost = stream.width - width
    total = -sum(parameter.numel() // stream.width * lost for parameter in stream.entries)
    for number, (norm, inputs, output, _) in enumerate(stream.sublayers):
        is_last = number == len(stream.sublayers) - 1
        total -= sum(parameter.numel() for parameter in norm.parameters())
        total -= sum(linear.out_features * lost for linear in inputs)
        if getattr(norm, "bias", None) is not None:
            total += sum(linear.out_features for linear in inputs if linear.bias is None)
        if not is_last:
            total -= sum(parameter.numel() for parameter in output.parameters()) // stream.width * lost
        total += width * (stream.width if is_last else width)
    return total


def residual_streams(model: Family) -> list[Stream]:
    """Return the streams of a model in the order in which they run.

    Raises ModelError for a family in which slicing is not defined.
    """
    network: Any = model.network
    if model.name in ("chronos-bolt", "chronos-2"):
        patches = network.input_patch_embedding
        entry = [patches.output_layer, patches.residual_layer, network.shared]
        stacks = [("encoder", network.encoder.block, entry)]
        stacks += [("decoder", network.decoder.block, [])] if model.name == "chronos-bolt" else []
        pairs = [
            (name, [(layer.layer_norm, layer) for block in blocks for layer in block.layer], entry)
            for name, blocks, entry in stacks
        ]
    elif model.name == "patchtst" and network.config.pre_norm:
        encoder = network.model.encoder
        pairs = [("encoder", _branches(encoder.layers, ("norm_sublayer1", "self_attn"), ("norm_sublayer3", "ff")),
                  [encoder.embedder, encoder.positional_encoder])]  # fmt: skip
    elif model.name == "moirai":
        pairs = [("encoder", _branches(network.encoder.layers, ("norm1", "self_attn"), ("norm2", "ffn")),
                  [network.in_proj, network.mask_encoding])]  # fmt: skip
    elif model.name == "visionts":
        parts = (("layernorm_before", "attention"), ("layernorm_after", "mlp"))
        decoder = network.decoder
        pairs = [
            ("encoder", _branches(network.vit.layers, *parts), [network.vit.embeddings]),
            ("decoder", _branches(decoder.decoder_layers, *parts),
             [decoder.decoder_embed, decoder.mask_token, decoder.decoder_pos_embed]),
        ]  # fmt: skip
    else:
        raise ModelError(f"{model.name}: slicing is not defined, expected x + branch(norm(x))")
    return [_stream(name, branches, entry) for name, branches, entry in pairs]


def _branches(blocks: Any, *names: tuple[str, str]) -> list[tuple[Any, Any]]:
    return [(getattr(block, norm), getattr(block, branch)) for block in blocks for norm, branch in names]


def _stream(name: str, branches: Sequence[tuple[Any, Any]], entry: Sequence[Any]) -> Stream:
    sublayers = tuple(_sublayer(norm, branch) for norm, branch in branches)
    parameters = [part for item in entry for part in ([item] if isinstance(item, nn.Parameter) else item.parameters())]
    return Stream(name, sublayers[0].output.out_features, tuple(parameters), sublayers)


def _sublayer(norm: nn.Module, branch: nn.Module) -> Sublayer:
    """Return a sublayer; keys and values of cross-attention (T5) read another stack and are left out."""
    linears = {path: part for path, part in branch.named_modules() if isinstance(part, nn.Linear)}
    (output,) = [part for path, part in linears.items() if path.rpartition(".")[2] in OUTPUTS]
    skipped = ("EncDecAttention.k", "EncDecAttention.v")
    inputs = tuple(part for path, part in linears.items() if part is not output and path not in skipped)
    return Sublayer(norm, inputs, output, type(branch).__name__ == "GroupSelfAttention")


def _centred(norm: nn.Module, states: torch.Tensor) -> torch.Tensor:
    """Return states without their mean if the norm subtracts it."""
    return states - states.mean(dim=-1, keepdim=True) if isinstance(norm, nn.LayerNorm) else states


def _project(sublayer: Sublayer, directions: Float[np.ndarray, "d width"]) -> None:
    """Register the hooks of one sublayer."""
    projection = torch.from_numpy(directions @ directions.T)
    differences: list[torch.Tensor] = []

    def before(norm: nn.Module, args: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
        states = args[0]
        projected = (_centred(norm, states.double()) @ projection).to(states.dtype)
        differences.append(projected - states)
        return (projected, *args[1:])

    def after(_: nn.Module, __: Any, output: torch.Tensor) -> torch.Tensor:
        difference = differences.pop()
        assert not differences and difference.shape == output.shape, (difference.shape, output.shape)
        return output + difference

    sublayer.norm.register_forward_pre_hook(before)
    sublayer.output.register_forward_hook(after)


def _signals(model: Family, stream: Stream, data: Calibration) -> Signals:
    """Return the function that yields the inputs of norms over the calibration windows, without padding."""

    def signals(sublayer: Sublayer) -> Iterator[torch.Tensor]:
        if stream.name not in model.stacks:
            # A stack without tokens (VisionTS' decoder) runs only in the loss, and has no padding.
            for parts in loss_batches(model, data.windows, model.batch):
                with capture({}, {"norm": sublayer.norm}) as states, torch.no_grad():
                    model.loss(*parts)
                yield states["norm"].flatten(0, -2)
            return
        for tokens in data.tokens:
            for start in range(0, len(tokens), model.batch):
                part = tokens.take(np.arange(start, min(start + model.batch, len(tokens))))
                mask = torch.from_numpy(part.kinds[stream.name] != TokenKind.PADDING)
                with capture({}, {"norm": sublayer.norm}) as states:
                    for _ in model.hidden_states(part):
                        pass
                rows = states["norm"]
                rows = rows.reshape(-1, *rows.shape[-2:])
                yield rows[mask.T if sublayer.tokens_first else mask]

    return signals


STRUCTURE_METHODS: dict[str, Callable[[Family, float, Calibration], None]] = {
    "prune-heads": prune_heads, "drop-layers": drop_layers, "basis-sharing": share_bases, "slicegpt": slice_residual,
}  # fmt: skip

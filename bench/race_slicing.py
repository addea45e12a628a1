"""SliceGPT (Ashkboos et al. 2024) for bench/compression_race.py, in place, as an exact simulation.

SliceGPT rotates the residual stream to its principal components before every sublayer and keeps the first k of them.
The sliced model is equal to the dense one whose stream x becomes P x before every sublayer, P being the projection on
these components: the branch reads norm(P x), and the stream continues with P x plus the branch, since rotations keep
norms. A hook of each norm projects its input, and a hook of the branch's last Linear adds P x - x to its output. A
LayerNorm's mean is subtracted from the stream too, as the authors do when they make it an RMSNorm. As in their code,
the components are computed sublayer by sublayer on the signals of the model that is sliced so far, from second moments
that are not centred, without padding. k is one share of the width. The last branch of a stack keeps its full width.
Sources: arXiv 2401.15024 and its public code (microsoft/TransformerCompression).

It slices MLPs and embeddings too. k is therefore the largest at which the whole sliced model, with its shortcut
matrices, has no more parameters than the dense model whose attention alone has the given size.

It is defined for blocks of the form x + branch(norm(x)) with one kind of norm. So it is not for TimesFM (RMSNorm before
attention, LayerNorm before MLPs: one stream cannot be centred for one of them alone), TimesFM 2.5 (a norm with scales
follows each branch) and Totem (norms after the sums). PatchTST's BatchNorm is affine when it forecasts, and is absorbed
like the scales of the other norms.
Deviations: k is not rounded to multiples of 8; the keys and values of cross-attention read the encoder's full last
states, as the output head does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import nn

from tsfmscope.compression.budget import BudgetError
from tsfmscope.compression.calibration_data import CalibrationData
from tsfmscope.compression.candidates import count_parameters
from tsfmscope.compression.loss_statistics import loss_batches
from tsfmscope.errors import ModelError
from tsfmscope.models.base import Forecaster
from tsfmscope.models.common.capture import capture
from tsfmscope.models.types import TokenKind

# Names of the last Linear of a branch.
OUTPUTS = ("o", "wo", "out_proj", "o_proj", "fc2", "3")


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


def slice_residual(model: Forecaster, size: float, data: CalibrationData) -> None:
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


def residual_streams(model: Forecaster) -> list[Stream]:
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


def _signals(model: Forecaster, stream: Stream, data: CalibrationData) -> Signals:
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

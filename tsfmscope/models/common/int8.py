"""Weights in eight bits: whole numbers with one scale per row, in memory as float32 and in files as int8."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tsfmscope.errors import ModelError

if TYPE_CHECKING:
    import torch

# Key of the block `compression` of config.json, and its value.
KEY, BITS = "bits", 8
# Largest whole number; the smallest is its negative.
LARGEST = 127
# Suffix of the name of a matrix's scales in a file.
SCALE = "::scale"
# Rows with fewer numbers stay in float32: they are in small matrices, and every scale takes four bytes.
SHORTEST = 16
# Number of mantissa bits of float32 that are zero in a scale. Products with numbers up to LARGEST are then exact, so
# that the scale and the numbers of a rounded row can be computed from it.
DROPPED_BITS = 8


def round_weights(network: torch.nn.Module) -> None:
    """Round the matrices that a network saves, embeddings included, to multiples of the scale of their row, in place.

    The scale of a row is the largest magnitude over LARGEST, rounded up to 16 bits. A row is the first dimension of a
    weight; further dimensions count as its numbers. Vectors and short rows stay.
    """
    import torch

    with torch.no_grad():
        # Some networks save matrices that are joined from several parameters, row by row, and buffers.
        for weight in (*network.parameters(), *network.state_dict().values()):
            if is_roundable(weight):
                weight.copy_(dequantise(*quantise(weight.detach())))


def is_stored(compression: Mapping[str, Any] | None) -> bool:
    """Whether the block `compression` of config.json asks for int8 weights in the file."""
    return (compression or {}).get(KEY) == BITS


def is_roundable(weight: torch.Tensor) -> bool:
    """Whether a weight has at least two dimensions, floating numbers and rows of at least SHORTEST numbers."""
    return weight.is_floating_point() and weight.dim() >= 2 and weight[0].numel() >= SHORTEST


def quantise(weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return whole numbers, int8 in the weight's shape, and the scale of each row, float32 [rows].

    A row of zeros has scale 1. ModelError for a weight with NaN or infinity.
    """
    import torch

    rows = weight.float().reshape(len(weight), -1)
    if not bool(torch.isfinite(rows).all()):
        raise ModelError("int8: weights contain NaN or infinity; check the checkpoint and its dtype")
    scales = _round_up(rows.abs().amax(dim=1) / LARGEST)
    scales = torch.where(scales > 0, scales, torch.ones_like(scales))
    numbers = (rows.double() / scales[:, None]).round().clamp(-LARGEST, LARGEST)
    return numbers.to(torch.int8).reshape(weight.shape), scales


def dequantise(numbers: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    """Return the float32 weight of whole numbers and the scales of its rows."""
    return numbers.float() * scales.reshape(-1, *[1] * (numbers.dim() - 1))


def stored_bytes(network: torch.nn.Module, *, rounded: bool) -> int:
    """Return the bytes of a network's weights in a file, as float32 or as `pack` stores them.

    Weights that share memory are counted once.
    """
    weights = {weight.data_ptr(): weight for weight in network.state_dict().values()}.values()
    count = 0
    for weight in weights:
        if rounded and is_roundable(weight):
            count += int(matrix_bytes(len(weight), weight[0].numel()))
        else:
            count += weight.numel() * (4 if weight.is_floating_point() else weight.element_size())
    return count


def matrix_bytes(rows: Any, columns: Any) -> Any:
    """Return the bytes of a rounded matrix in a file; rows, columns: numbers or arrays."""
    import numpy as np

    return np.where(np.asarray(columns) >= SHORTEST, rows * columns + 4 * rows, 4 * rows * columns)


def pack(path: Path) -> None:
    """Rewrite a safetensors file of rounded weights with int8 numbers and scales; other tensors stay as they are."""
    from safetensors.torch import load_file, save_file

    packed = {}
    for name, tensor in load_file(path).items():
        packed[name] = tensor
        if is_roundable(tensor):
            numbers, packed[name + SCALE] = quantise(tensor)
            packed[name] = numbers.contiguous()
    save_file(packed, path, metadata={"format": "pt"})


def unpack(tensors: Mapping[str, Any], location: Path) -> dict[str, torch.Tensor]:
    """Return the weights of a file with the int8 matrices as float32; the tensors themselves if it has none.

    Raises ModelError, which names `location`, for scales that are missing or do not fit.
    """
    import torch

    found = {name: tensor for name, tensor in tensors.items() if not name.endswith(SCALE)}
    for name, tensor in found.items():
        scales = tensors.get(name + SCALE)
        if tensor.dtype != torch.int8 and scales is None:
            continue
        shape = tuple(tensor.shape[:1])
        if tensor.dtype != torch.int8 or scales is None or scales.dtype != torch.float32 or scales.shape != shape:
            got = "none" if scales is None else f"{scales.dtype} {tuple(scales.shape)} for {tensor.dtype}"
            raise ModelError(
                f"{location}: got scales {got} of {name}, expected float32 {shape} for int8; fetch or save it again"
            )
        found[name] = dequantise(tensor, scales)
    if unused := sorted(name for name in tensors if name.endswith(SCALE) and name.removesuffix(SCALE) not in found):
        raise ModelError(f"{location}: got scales {unused[:3]} of weights that are missing; fetch or save it again")
    return found


def _round_up(scales: torch.Tensor) -> torch.Tensor:
    """Return the scales, rounded up until the last DROPPED_BITS bits of the mantissa are zero."""
    import torch

    step = 1 << DROPPED_BITS
    bits = scales.float().contiguous().view(torch.int32)
    return ((bits + step - 1) // step * step).view(torch.float32)

"""Weights of few bits: whole numbers with one scale per group, in memory as float32 and in files packed.

A group is `group` neighbouring numbers of a row, or a whole row. Its numbers are multiples of a bfloat16 scale, so the
products are exact in float32, and numbers and scales can be computed from the weights: a file is packed without loss,
and without a record of how it was rounded. A matrix of zeros has 0 bits: a file has its shape alone.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from jaxtyping import Float32, Int8, Int64, UInt8

from tsfmscope.errors import ModelError

if TYPE_CHECKING:
    import torch

# Numbers of bits of a weight, and numbers of a group; 0: a row is one group.
BITS = (2, 3, 4, 5, 6, 7, 8)
GROUPS = (0, 64, 32)
# Rows with fewer numbers are not rounded: they are in small matrices, and a scale takes two bytes.
SHORTEST = 16
# Names of the two tensors of a packed file with all numbers and all scales, one matrix after the other, and the key of
# its metadata that states, in the same order, name -> [bits, group, *shape].
NUMBERS, SCALES, RECORD = "packed_numbers", "packed_scales", "packed"
# Mantissa bits of float32, less the one that is implied, and of bfloat16.
MANTISSA, SCALE_MANTISSA = 24, 8


class Packed(NamedTuple):
    """Whole numbers of a matrix, and the scale of each group of a row.

    The numbers are from -2^(bits - 1) to 2^(bits - 1) - 1. group: numbers per group; 0: a row is one. The last
    group of a row may be shorter.
    """

    numbers: Int8[np.ndarray, "row column"]
    scales: Float32[np.ndarray, "row group"]
    bits: int
    group: int

    @property
    def weight(self) -> Float32[np.ndarray, "row column"]:
        """The weights, numbers times scales."""
        columns = self.numbers.shape[1]
        weight: np.ndarray = self.numbers * np.repeat(self.scales, self.group or columns, axis=1)[:, :columns]
        return weight


def is_roundable(weight: torch.Tensor) -> bool:
    """Whether a weight has at least two dimensions, floating numbers and rows of at least SHORTEST numbers."""
    return weight.is_floating_point() and weight.dim() >= 2 and weight.numel() >= SHORTEST * max(len(weight), 1)


def matrix_bytes(rows: int, columns: int, bits: int, group: int) -> int:
    """Return the bytes of a packed matrix."""
    numbers, n_scales = packed_sizes(rows, columns, bits, group)
    return numbers + 2 * n_scales


def packed_sizes(rows: int, columns: int, bits: int, group: int) -> tuple[int, int]:
    """Return the bytes of the numbers of a packed matrix, and the number of its scales."""
    return math.ceil(rows * columns * bits / 8), rows * math.ceil(columns / (group or columns)) if bits else 0


def find_grid(weight: Float32[np.ndarray, "row column"]) -> Packed | None:
    """Return the numbers and scales that give a weight back, or None if there are none.

    The sign of zeros may change. In a group of multiples of a scale, the greatest common divisor of the weights is
    a multiple of the scale. Of the fractions of this divisor, the largest that bfloat16 can hold is taken. Of
    several groups, those with the fewest bytes are taken: scales of two groups of a row may be multiples of one
    scale, but with numbers of more bits.
    """
    rows, columns = weight.shape
    best: Packed | None = None
    least = math.inf
    for group in GROUPS:
        # A longer group is the whole row.
        if group >= columns:
            continue
        # Most weights are not rounded, or not in fewer bytes, which the first row shows.
        first = _find_groups(weight[:1], group)
        if first is None or matrix_bytes(rows, columns, first.bits, group) >= least:
            continue
        found = _find_groups(weight, group)
        if found is not None and (size := matrix_bytes(rows, columns, found.bits, group)) < least:
            best, least = found, size
    return best


def _find_groups(weight: Float32[np.ndarray, "row column"], group: int) -> Packed | None:
    """Return what `find_grid` does, of groups of this length."""
    rows, columns = weight.shape
    width = group or columns
    padded = np.pad(weight, ((0, 0), (0, -columns % width)))
    if (found := _multiples(padded.reshape(-1, width))) is None:
        return None
    numbers, scales = found
    is_turned = numbers.max(axis=1) > -numbers.min(axis=1)
    numbers[is_turned] *= -1
    scales[is_turned] *= -1
    bits = next((bits for bits in BITS if numbers.min() >= -(2 ** (bits - 1)) and numbers.max() < 2 ** (bits - 1)), 0)
    if not bits:
        return None
    numbers = numbers.reshape(rows, -1)[:, :columns]
    return Packed(numbers.astype(np.int8), scales.reshape(rows, -1), bits, group)


def _multiples(
    groups: Float32[np.ndarray, "group number"],
) -> tuple[Int64[np.ndarray, "group number"], Float32[np.ndarray, " group"]] | None:
    """Return whole numbers, at most 128 in size, and bfloat16 scales of groups; None if a group has none."""
    if not np.isfinite(groups).all():
        return None
    _, exponent = np.frexp(np.abs(groups).max(axis=1, keepdims=True))
    wholes = np.ldexp(groups.astype(np.float64), MANTISSA - exponent)
    if (wholes != np.rint(wholes)).any():
        return None
    numbers = wholes.astype(np.int64)
    divisors = np.gcd.reduce(numbers, axis=1)
    divisors[divisors == 0] = 1
    numbers //= divisors[:, None]
    largest = np.abs(numbers).max(axis=1)
    factors = np.zeros(len(groups), np.int64)
    for factor in range(1, 2 ** (BITS[-1] - 1) + 1):
        part, rest = np.divmod(divisors, factor)
        # bfloat16 holds a whole number whose odd part has at most 8 bits.
        is_scale = (rest == 0) & (part > 0) & (part // np.maximum(part & -part, 1) < 2**SCALE_MANTISSA)
        factors[(factors == 0) & is_scale & (largest * factor <= 2 ** (BITS[-1] - 1))] = factor
        if factors.all():
            scales = np.ldexp((divisors // factors).astype(np.float64), exponent[:, 0] - MANTISSA)
            return numbers * factors[:, None], scales.astype(np.float32)
    return None


def pack(path: Path) -> None:
    """Rewrite a safetensors file: rounded matrices as packed numbers, exact halves as float16, the rest as it is.

    A file without a rounded matrix stays as it is.
    """
    import torch
    from safetensors.torch import load_file, save_file

    kept: dict[str, torch.Tensor] = {}
    record: dict[str, list[int]] = {}
    numbers, scales = [], []
    for name, tensor in load_file(path).items():
        # Of float64, the numbers in float32 would be others.
        is_single = is_roundable(tensor) and tensor.dtype != torch.float64
        found = find_grid(tensor.float().reshape(len(tensor), -1).numpy()) if is_single else None
        if found is not None and not found.numbers.any():
            record[name] = [0, 0, *tensor.shape]
        elif found is not None:
            record[name] = [found.bits, found.group, *tensor.shape]
            numbers.append(to_bytes(found.numbers, found.bits))
            scales.append(found.scales.ravel())
        elif tensor.dtype == torch.float32 and torch.equal(tensor.half().float(), tensor):
            kept[name] = tensor.half()
        else:
            kept[name] = tensor
    if not record:
        return
    kept[NUMBERS] = torch.from_numpy(np.concatenate([np.empty(0, np.uint8), *numbers]))
    kept[SCALES] = torch.from_numpy(np.concatenate([np.empty(0, np.float32), *scales])).bfloat16()
    # One key: several are written in an order that varies.
    save_file(kept, path, metadata={RECORD: json.dumps(record, separators=(",", ":"))})


def read_file(path: Path) -> dict[str, torch.Tensor]:
    """Return the tensors of a safetensors file by name, those of a packed one as float32.

    Raises ModelError for a packed file whose record does not fit its numbers and scales.
    """
    import torch
    from safetensors import safe_open
    from safetensors.torch import load_file

    with safe_open(path, "pt") as file:
        text = (file.metadata() or {}).get(RECORD)
    tensors: dict[str, torch.Tensor] = load_file(path)
    if text is None:
        return tensors
    record = read_record(text, path)
    none = torch.empty(0)
    numbers, scales = tensors.pop(NUMBERS, none.byte()), tensors.pop(SCALES, none.bfloat16())
    found = {name: tensor.float() if tensor.dtype == torch.float16 else tensor for name, tensor in tensors.items()}
    sizes = [packed_sizes(rows, math.prod(others), bits, group) for bits, group, rows, *others in record.values()]
    expected = tuple(sum(size[part] for size in sizes) for part in (0, 1))
    got = (numbers.numel(), scales.numel())
    is_typed = numbers.dtype == torch.uint8 and scales.dtype == torch.bfloat16
    if twice := sorted(record.keys() & found.keys()):
        raise ModelError(f"{path}: got {twice[0]!r} both packed and not; fetch or save it again")
    if not is_typed or numbers.dim() != 1 or scales.dim() != 1 or got != expected:
        raise ModelError(
            f"{path}: got {got[0]} bytes {numbers.dtype} and {got[1]} scales {scales.dtype}, expected {expected[0]} "
            f"uint8 and {expected[1]} bfloat16 for {len(record)} packed weights; fetch or save it again"
        )
    packed_numbers, packed_scales = numbers.numpy(), scales.float().numpy()
    for (name, entry), (n_bytes, n_scales) in zip(record.items(), sizes, strict=True):
        bits, group, *shape = entry
        if not bits:
            # A view of one number: a damaged shape takes no memory.
            found[name] = torch.zeros(()).expand(shape)
            continue
        columns = math.prod(shape[1:])
        part = _from_bytes(packed_numbers[:n_bytes], bits, shape[0] * columns).reshape(shape[0], columns)
        weight = Packed(part, packed_scales[:n_scales].reshape(shape[0], -1), bits, group).weight
        found[name] = torch.from_numpy(weight).reshape(shape)
        packed_numbers, packed_scales = packed_numbers[n_bytes:], packed_scales[n_scales:]
    return found


def read_shapes(path: Path) -> dict[str, tuple[int, ...]]:
    """Return the shape of each weight of a safetensors file by name, without reading it; errors as in `read_file`."""
    from safetensors import safe_open

    with safe_open(path, "numpy") as file:
        record = read_record((file.metadata() or {}).get(RECORD, "{}"), path)
        names = [name for name in file.keys() if not record or name not in (NUMBERS, SCALES)]  # noqa: SIM118
        shapes = {name: tuple(file.get_slice(name).get_shape()) for name in names}
    return shapes | {name: tuple(shape) for name, (_, _, *shape) in record.items()}


def read_record(text: str, path: Path) -> dict[str, list[int]]:
    """Return the record of a packed file, name -> [bits, group, *shape]; ModelError if it is none."""
    try:
        record = json.loads(text)
        for entry in record.values():
            bits, group, *shape = entry
            is_whole = all(type(number) is int for number in entry)
            # Larger sizes than those of any file overflow.
            is_shape = is_whole and len(shape) >= 2 and min(shape) >= 1 and math.prod(shape) < 2**53
            if not is_shape or bits not in (0, *BITS) or group not in GROUPS:
                raise ValueError(f"got the entry {entry!r:.100}")
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise ModelError(
            f"{path}: expected packed weights as name -> [bits, group, *shape] ({error}); fetch or save it again"
        ) from error
    return dict(record)


def to_bytes(numbers: Int8[np.ndarray, ...], bits: int) -> UInt8[np.ndarray, " byte"]:
    """Return the numbers, plus 2^(bits - 1), as `bits` bits each, the highest first; the last byte is filled up."""
    shifted = (numbers.ravel().astype(np.int16) + 2 ** (bits - 1)).astype(np.uint8)
    return np.packbits(np.unpackbits(shifted[:, None], axis=1)[:, 8 - bits :])


def _from_bytes(packed: UInt8[np.ndarray, " byte"], bits: int, count: int) -> Int8[np.ndarray, " number"]:
    """Return the numbers of `to_bytes`."""
    single = np.unpackbits(packed, count=count * bits).reshape(count, bits)
    shifted = np.packbits(np.pad(single, ((0, 0), (8 - bits, 0))), axis=1)[:, 0]
    numbers: np.ndarray = (shifted.astype(np.int16) - 2 ** (bits - 1)).astype(np.int8)
    return numbers

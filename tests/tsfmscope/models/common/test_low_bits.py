"""Weights of few bits: numbers and scales are found again, files are packed without loss, and damaged ones refused."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from tsfmscope.errors import ModelError
from tsfmscope.models.common import low_bits
from tsfmscope.models.common.low_bits import BITS, GROUPS, Packed, find_grid, matrix_bytes, pack, read_file, read_shapes

SEEDS = st.integers(0, 2**32 - 1)


def make_packed(
    rng: np.random.Generator, bits: int, group: int, shape: tuple[int, int], size: float = 1.0, divisor: int = 1
) -> Packed:
    """Return random multiples of a divisor, and random bfloat16 scales of both signs."""
    numbers = rng.integers(-(2 ** (bits - 1)), 2 ** (bits - 1), shape)
    n_scales = math.ceil(shape[1] / (group or shape[1]))
    scales = torch.from_numpy(size * rng.normal(size=(shape[0], n_scales))).bfloat16().float().numpy()
    return Packed((np.trunc(numbers / divisor) * divisor).astype(np.int8), scales, bits, group)


def packed_bytes(packed: Packed) -> int:
    return matrix_bytes(*packed.numbers.shape, packed.bits, packed.group)


def assert_found(made: Packed) -> Packed:
    """Assert that the grid of a weight is found, in at most its bytes, and return it."""
    found = find_grid(made.weight)
    assert found is not None and np.array_equal(found.weight, made.weight)
    limit = 2 ** (found.bits - 1)
    assert -limit <= found.numbers.min() and found.numbers.max() < limit and found.bits <= made.bits
    assert np.array_equal(torch.from_numpy(found.scales).bfloat16().float().numpy(), found.scales)
    assert packed_bytes(found) <= packed_bytes(made)
    return found


@settings(deadline=None)
@given(st.builds(
    make_packed, SEEDS.map(np.random.default_rng), st.sampled_from(BITS), st.sampled_from(GROUPS),
    st.tuples(st.integers(1, 4), st.integers(16, 140)), st.sampled_from([1e-39, 1e-30, 1.0, 1e20]), st.integers(1, 96),
))  # fmt: skip
def test_numbers_and_scales_are_found_again(made: Packed) -> None:
    assert_found(made)


@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("number", [1, -1, 96, -128])
@pytest.mark.parametrize("group", GROUPS)
def test_rows_of_zeros_equal_numbers_and_single_numbers_are_found(bits: int, number: int, group: int) -> None:
    number = int(np.clip(number, -(2 ** (bits - 1)), 2 ** (bits - 1) - 1))
    made = make_packed(np.random.default_rng(0), bits, group, (5, 100))
    made.numbers[1], made.numbers[2], made.numbers[3], made.numbers[3, 70] = 0, number, 0, number
    assert_found(made)


def test_scales_with_a_common_divisor_do_not_take_more_bits() -> None:
    """By hand: with scales 3 and 5, two bits are multiples of 1 from -10 to 5, which would take five bits."""
    numbers = np.tile(np.array([-2, 1], np.int8), (1, 32))
    found = assert_found(Packed(numbers, np.array([[3.0, 5.0]], np.float32), 2, 32))
    assert (found.bits, found.group) == (2, 32)


@settings(deadline=None)
@given(SEEDS, st.sampled_from(GROUPS), st.integers(16, 140))
def test_other_weights_have_no_grid_even_if_most_rows_have_one(seed: int, group: int, columns: int) -> None:
    rng = np.random.default_rng(seed)
    weight = rng.normal(size=(3, columns)).astype(np.float32)
    assert find_grid(weight) is None
    weight[:2] = make_packed(rng, 4, group, (2, columns)).weight
    assert find_grid(weight) is None
    for wrong in (np.nan, np.inf, -np.inf):
        broken = make_packed(rng, 8, group, (2, columns)).weight
        broken[rng.integers(2), rng.integers(columns)] = wrong
        assert find_grid(broken) is None


@settings(deadline=None)
@given(SEEDS, st.sampled_from(BITS), st.integers(1, 70))
def test_bytes_are_those_of_a_string_of_bits(seed: int, bits: int, count: int) -> None:
    numbers = make_packed(np.random.default_rng(seed), bits, 0, (1, count)).numbers.ravel()
    text = "".join(format(int(number) + 2 ** (bits - 1), f"0{bits}b") for number in numbers)
    text += "0" * (-len(text) % 8)
    assert low_bits.to_bytes(numbers, bits).tobytes() == int(text, 2).to_bytes(len(text) // 8, "big")
    assert np.array_equal(low_bits._from_bytes(low_bits.to_bytes(numbers, bits), bits, count), numbers)


def write_packed(path: Path, bits: int = 4, group: int = 32) -> tuple[dict[str, torch.Tensor], dict[str, Packed]]:
    """Write a packed file; return its tensors before they were packed, and the packed ones, one of three dimensions."""
    rng = np.random.default_rng(0)
    packed = {"a": make_packed(rng, bits, group, (7, 130)), "z": make_packed(rng, 9 - bits, 0, (3, 21))}
    random = torch.from_numpy(rng.normal(size=(6, 40)).astype(np.float32))
    tensors = {"a": torch.from_numpy(packed["a"].weight).reshape(7, 13, 10), "z": torch.from_numpy(packed["z"].weight)}
    kept = {
        "halves": random[0].half().float(), "vector": random[1], "nan": torch.tensor([1.0, math.nan]),
        "large": torch.tensor([1e5]), "matrix": random, "matrix of halves": random.half().float(),
        "scalar": random[0, 0], "ids": torch.arange(64).reshape(2, 32), "narrow": torch.ones(4, 15),
        "empty": torch.ones(0, 20), "double": torch.full((2, 16), 1 + 1e-12, dtype=torch.float64),
    }  # fmt: skip
    tensors |= {name: tensor.clone() for name, tensor in kept.items()}
    save_file(tensors, path)
    pack(path)
    return tensors, packed


@pytest.mark.parametrize("bits", [2, 3, 5, 7])
@pytest.mark.parametrize("group", GROUPS)
def test_a_packed_file_has_the_tensors_of_the_original_in_fewer_bytes(bits: int, group: int, tmp_path: Path) -> None:
    path = tmp_path / "weights.safetensors"
    tensors, packed = write_packed(path, bits, group)
    found = read_file(path)
    assert found.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert found[name].dtype == tensor.dtype and found[name].shape == tensor.shape
        assert torch.equal(found[name].nan_to_num(9), tensor.nan_to_num(9)), name
    stored = load_file(path)
    halves = {name for name, tensor in stored.items() if tensor.dtype == torch.float16}
    assert halves == {"halves", "matrix of halves", "narrow", "empty"} and stored["ids"].dtype == torch.int64
    assert len(stored[low_bits.NUMBERS]) + 2 * len(stored[low_bits.SCALES]) == sum(map(packed_bytes, packed.values()))
    assert read_shapes(path) == {name: tuple(tensor.shape) for name, tensor in tensors.items()}


def test_zeros_take_no_bytes_and_a_damaged_shape_no_memory(tmp_path: Path) -> None:
    path, shape = tmp_path / "weights.safetensors", (4, 16, 3)
    save_file({"zeros": torch.zeros(shape), "vector": torch.ones(3)}, path)
    pack(path)
    stored = load_file(path)
    assert stored[low_bits.NUMBERS].numel() == stored[low_bits.SCALES].numel() == 0
    assert torch.equal(read_file(path)["zeros"], torch.zeros(shape)) and read_shapes(path)["zeros"] == shape
    save_file(stored, path, metadata={low_bits.RECORD: json.dumps({"zeros": [0, 0, 2**26, 2**26]})})
    assert read_file(path)["zeros"].untyped_storage().nbytes() == 4


def test_a_file_without_rounded_matrices_stays_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "weights.safetensors"
    tensors = write_packed(path)[0] | {"short": torch.ones(3).half()}
    del tensors["a"], tensors["z"]
    save_file(tensors, path)
    before = path.read_bytes()
    pack(path)
    assert path.read_bytes() == before and read_file(path)["short"].dtype == torch.float16
    assert read_shapes(path) == {name: tuple(tensor.shape) for name, tensor in tensors.items()}


ENTRIES: list[Any] = [
    [9, 32, 7, 130], [1, 32, 7, 130], [4.0, 32, 7, 130], [True, 0, 7, 130], [4, -32, 7, 130], [4, 31, 7, 130],
    [4, 10**12, 7, 130], [4, 32, 910], [4, 32, 0, 130], [4, 32, -7, -130], [4, 32, 10**200, 10**200], [], [4], 5, None,
    "4\n2", {"bits": 4}, [4, 32, "7", 130], [4, 32, [7], 130],
]  # fmt: skip
TEXTS = ["", "{", "[1, 2]", "3", "null", "[" * 100_000, *(json.dumps({"a": entry}) for entry in ENTRIES)]


@pytest.mark.parametrize("text", TEXTS, ids=lambda text: text[:30])
def test_a_record_that_is_none_is_one_line_that_names_the_file(text: str, tmp_path: Path) -> None:
    path = damage(tmp_path, lambda *_: None, text)
    for read in (read_file, read_shapes):
        with pytest.raises(ModelError, match=r"^\S*weights\.safetensors: expected packed weights.{,300}; fetch.*$"):
            read(path)


@pytest.mark.parametrize(("change", "expected"), [
    (lambda _, record: record.update(a=[4, 32, 8, 130]), "got .* bytes torch.uint8 and .* scales"),
    (lambda _, record: record.update(a=[5, 32, 7, 130]), "got .* bytes"),
    (lambda _, record: record.update(a=[4, 0, 7, 130]), "got .* scales"),
    (lambda _, record: record.pop("z"), "for 1 packed weights"),
    (lambda tensors, _: tensors.update({low_bits.NUMBERS: tensors[low_bits.NUMBERS][:-1].clone()}), "got .* bytes"),
    (lambda tensors, _: tensors.update({low_bits.NUMBERS: tensors[low_bits.NUMBERS].char()}), r"torch\.int8"),
    (lambda tensors, _: tensors.update({low_bits.NUMBERS: torch.tensor(3, dtype=torch.uint8)}), "got 1 bytes"),
    (lambda tensors, _: tensors.update({low_bits.SCALES: tensors[low_bits.SCALES].half()}), r"torch\.float16"),
    (lambda tensors, _: tensors.update({low_bits.SCALES: tensors[low_bits.SCALES].repeat(2)}), "got .* scales"),
    (lambda tensors, _: tensors.pop(low_bits.SCALES), "and 0 scales"),
    (lambda tensors, _: tensors.update(a=torch.ones(7, 130)), "got 'a' both packed and not"),
])  # fmt: skip
def test_numbers_and_scales_that_do_not_fit_are_one_line(change: Any, expected: str, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=rf"^\S*weights\.safetensors: .*{expected}.*; fetch or save it again$"):
        read_file(damage(tmp_path, change))


def damage(folder: Path, change: Any, text: str | None = None) -> Path:
    """Return a packed file whose tensors and record were changed, or whose record is a text."""
    path = folder / "weights.safetensors"
    write_packed(path)
    with safe_open(path, "pt") as file:
        record = json.loads(file.metadata()[low_bits.RECORD])
    tensors = load_file(path)
    change(tensors, record)
    save_file(tensors, path, metadata={low_bits.RECORD: json.dumps(record) if text is None else text})
    return path

"""Weights in eight bits: what is rounded, what a file contains, and that a loaded model is the saved one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from tests.tsfmscope.compression.test_export import CONFIGS, OWN, stock_windows
from tsfmscope.compression import export
from tsfmscope.compression.compress import reduce_bits
from tsfmscope.compression.options import Method
from tsfmscope.compression.truncation import compress
from tsfmscope.errors import ModelError
from tsfmscope.models.base import Family, Forecaster
from tsfmscope.models.common.int8 import SCALE, dequantise, pack, quantise, stored_bytes, unpack
from tsfmscope.models.registry import facts, family_class


def random_weight(seed: int, size: float = 1.0, shape: tuple[int, ...] = (5, 40)) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(seed).normal(scale=size, size=shape).astype(np.float32))


@settings(deadline=None)
@given(st.integers(0, 99), st.sampled_from([1e-30, 1e-6, 1.0, 1e20]))
def test_a_number_is_off_by_at_most_half_a_scale_and_the_largest_by_a_thousandth(seed: int, size: float) -> None:
    weight = random_weight(seed, size)
    numbers, scales = quantise(weight)
    error = (dequantise(numbers, scales) - weight).abs()
    assert bool((error <= 0.5001 * scales[:, None]).all())
    assert torch.equal(numbers.abs().amax(1), torch.full((5,), 127, dtype=torch.int8))
    largest = weight.abs().amax(1)
    assert bool((scales >= largest / 127 * 0.9999).all() and (scales <= largest / 127 * 1.0001).all())


@settings(deadline=None)
@given(st.integers(0, 999), st.floats(-36, 36))
def test_rounding_twice_is_rounding_once(seed: int, exponent: float) -> None:
    rounded = dequantise(*quantise(random_weight(seed, 10.0**exponent)))
    assert torch.equal(dequantise(*quantise(rounded)), rounded)


def test_rows_of_zeros_stay_and_other_dtypes_are_read() -> None:
    weight = random_weight(0)
    weight[2] = 0
    assert torch.equal(dequantise(*quantise(weight))[2], torch.zeros(40))
    assert torch.equal(dequantise(*quantise(weight.half()))[2], torch.zeros(40))
    kernel = random_weight(1, shape=(4, 3, 8))
    numbers, scales = quantise(kernel)
    assert numbers.shape == kernel.shape and scales.shape == (4,) and dequantise(numbers, scales).shape == kernel.shape


@pytest.mark.parametrize("wrong", [float("nan"), float("inf")])
def test_weights_that_are_no_numbers_are_refused(wrong: float) -> None:
    weight = random_weight(0)
    weight[1, 1] = wrong
    with pytest.raises(ModelError, match="NaN or infinity"):
        quantise(weight)


def made(family: str) -> Family:
    """A model with random weights, compressed to narrow heads and eight bits."""
    model = family_class(family).new((CONFIGS | OWN)[family], seed=1)
    method = Method.model_validate({"method": "joint", "ranks": {"share": 0.5}, "bits": 8})
    compress(model, method)
    reduce_bits(model, method)
    return model


@pytest.mark.parametrize("family", [*CONFIGS, *OWN])
def test_a_loaded_model_is_the_saved_one_in_a_quarter_of_the_bytes(family: str, tmp_path: Path) -> None:
    model = made(family)
    export.save(model, tmp_path)
    loaded = family_class(family).load(tmp_path)
    saved = model.network.state_dict()
    for name, weight in loaded.network.state_dict().items():
        assert torch.equal(weight, saved[name]), name
    windows = stock_windows(family)
    if isinstance(model, Forecaster) and isinstance(loaded, Forecaster):
        seeds = [0] * len(windows)
        assert np.array_equal(loaded.forecast(windows, seeds=seeds).values, model.forecast(windows, seeds=seeds).values)
    assert loaded.compression == model.compression and model.compression["bits"] == 8
    bytes_of = sum(
        weight.numel() * weight.element_size() for weight in load_file(tmp_path / "compressed.safetensors").values()
    )
    full = sum(4 * weight.numel() for weight in saved.values())
    assert bytes_of == stored_bytes(model.network, rounded=True) < 0.5 * full
    assert export.file_bytes(model) == (tmp_path / "compressed.safetensors").stat().st_size
    assert facts(tmp_path)["parameters"] == sum(
        weight.numel() for name, weight in load_file(tmp_path / "compressed.safetensors").items() if SCALE not in name
    )


def test_a_dense_export_has_the_rounded_weights_in_float32(tmp_path: Path) -> None:
    model = made("chronos-bolt")
    export.save(model, tmp_path / "small")
    export.save(export.densify(family_class("chronos-bolt").load(tmp_path / "small")), tmp_path / "dense")
    dense = family_class("chronos-bolt").load(tmp_path / "dense")
    assert dense.compression is None
    windows = stock_windows("chronos-bolt")
    ours, theirs = (one.forecast(windows, seeds=[0] * 3).values for one in (model, dense))
    np.testing.assert_allclose(theirs, ours, atol=1e-5 * np.abs(ours).max())


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda tensors: tensors.pop("w" + SCALE), "got scales none of w"),
        (
            lambda tensors: tensors.update({"w" + SCALE: torch.ones(3)}),
            r"got scales torch.float32 \(3,\) for torch.int8",
        ),
        (lambda tensors: tensors.update({"w" + SCALE: torch.ones(5).double()}), "got scales torch.float64"),
        (lambda tensors: tensors.update({"w": torch.ones(5, 40)}), "for torch.float32 of w"),
        (lambda tensors: tensors.pop("w"), "got scales .* of weights that are missing"),
    ],
)
def test_scales_that_do_not_fit_are_one_line_that_names_the_weight(change: Any, expected: str, tmp_path: Path) -> None:
    path = tmp_path / "compressed.safetensors"
    save_file({"w": random_weight(0), "b": torch.ones(5)}, path)
    pack(path)
    tensors = load_file(path)
    assert {name: tensor.dtype for name, tensor in tensors.items()} == {
        "w": torch.int8, "w" + SCALE: torch.float32, "b": torch.float32,
    }  # fmt: skip
    change(tensors)
    with pytest.raises(ModelError, match=expected):
        unpack(tensors, path)


def test_other_bits_in_a_config_are_refused(tmp_path: Path) -> None:
    export.save(made("chronos-bolt"), tmp_path)
    config = tmp_path / "config.json"
    config.write_text(config.read_text().replace('"bits": 8', '"bits": 4'))
    with pytest.raises(ModelError, match="contains bits 4, expected 8, 32 or none"):
        family_class("chronos-bolt").load(tmp_path)

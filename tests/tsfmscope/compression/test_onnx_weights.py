"""Weights of an ONNX model in eight bits: forecasts stay the same to the last bit, and the file is smaller."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper

from tests.tsfmscope.compression.conftest import TOYS
from tsfmscope.compression.onnx_export import TOLERANCE, pack_weights, write_onnx
from tsfmscope.models.chronos import ChronosBolt
from tsfmscope.models.common import int8


def rounded(*shape: int, axis: int = 0) -> np.ndarray:
    """Random weights that eight bits give exactly, with one scale per row of a dimension."""
    rows = torch.from_numpy(np.random.default_rng(0).normal(size=shape).astype(np.float32)).movedim(axis, 0)
    return int8.dequantise(*int8.quantise(rows.contiguous())).movedim(0, axis).numpy()


def write(path: Path, weight: np.ndarray, node: Any) -> None:
    """Write a graph of one product of `x` and a weight."""
    shape = ["batch", *[None] * (1 if node.op_type == "MatMul" else 2)]
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in "xy"]
    graph = helper.make_graph([node], "graph", values[:1], values[1:], [numpy_helper.from_array(weight, "w")])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10), path)


def run(path: Path, x: np.ndarray) -> np.ndarray:
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    answer: np.ndarray = session.run(None, {"x": x})[0]
    return answer


@pytest.mark.parametrize(("weight", "node"), [
    (rounded(64, 48), helper.make_node("MatMul", ["x", "w"], ["y"])),
    (rounded(64, 48, axis=1), helper.make_node("MatMul", ["x", "w"], ["y"])),
    (rounded(24, 64, 3), helper.make_node("Conv", ["x", "w"], ["y"])),
], ids=["rows", "columns", "convolution"])  # fmt: skip
def test_the_output_stays_the_same_and_the_file_is_a_quarter(weight: np.ndarray, node: Any, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    write(path, weight, node)
    shape = (5, 64) if node.op_type == "MatMul" else (5, 64, 7)
    x = np.random.default_rng(1).normal(size=shape).astype(np.float32)
    before, size = run(path, x), path.stat().st_size
    pack_weights(path)
    onnx.checker.check_model(path)
    assert path.stat().st_size < 0.35 * size
    assert np.array_equal(run(path, x), before)
    # Nothing is left to store.
    again = path.read_bytes()
    pack_weights(path)
    assert path.read_bytes() == again


@pytest.mark.parametrize("weight", [
    np.random.default_rng(2).normal(size=(64, 48)).astype(np.float32),
    np.full((64, 48), np.nan, np.float32),
    rounded(64, 48).astype(np.float64),
    np.arange(64, dtype=np.float32),
], ids=["not rounded", "NaN", "float64", "vector"])  # fmt: skip
def test_other_weights_stay_as_they_are(weight: np.ndarray, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    write(path, weight, helper.make_node("MatMul", ["x", "w"], ["y"]))
    before = onnx.load(path)
    pack_weights(path)
    assert onnx.load(path) == before


def test_a_model_of_eight_bits_is_exported_with_weights_of_eight_bits(tmp_path: Path) -> None:
    # With one layer of each kind, exporting takes half the time.
    model = ChronosBolt.new(TOYS["chronos-bolt"] | {"num_layers": 1, "num_decoder_layers": 1}, seed=0)
    int8.round_weights(model.network)
    model.compression = {"widths": {}, int8.KEY: int8.BITS}
    exported = write_onnx(model, tmp_path, context=None, horizon=None, origin={})
    assert exported.difference <= TOLERANCE and exported.bits == 32 and exported.bytes < exported.float_bytes
    kinds = [tensor.data_type for tensor in onnx.load(tmp_path / "model.onnx").graph.initializer]
    assert kinds.count(TensorProto.INT8) > 10

"""Int8 of ONNX graphs that are written by hand: which products change, and errors within the steps of rounding."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from tsfmscope.compression.onnx_export import quantise_onnx
from tsfmscope.compression.onnx_forecaster import open_session
from tsfmscope.errors import ModelError


def write(path: Path, *weights: np.ndarray) -> None:
    """Write a graph that multiplies its input by the weights, one after another."""
    names = ["x", *(f"y{index}" for index in range(len(weights)))]
    nodes = [
        helper.make_node("MatMul", [names[index], f"w{index}"], [names[index + 1]], name=f"product-{index}")
        for index in range(len(weights))
    ]
    values = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", width])
        for name, width in ((names[0], len(weights[0])), (names[-1], weights[-1].shape[1]))
    ]
    arrays = [numpy_helper.from_array(array, f"w{index}") for index, array in enumerate(weights)]
    graph = helper.make_graph(nodes, "chain", values[:1], values[1:], arrays)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10), path)


@settings(deadline=None, max_examples=20)
@given(st.integers(0, 2**31), st.floats(-6, 6), st.integers(1, 40))
def test_errors_are_within_the_steps_of_weights_and_activations(
    tmp_path_factory: pytest.TempPathFactory, seed: int, size: float, count: int
) -> None:
    rng, path = np.random.default_rng(seed), tmp_path_factory.mktemp("int8") / "model.onnx"
    first, second = rng.normal(size=(6, 24)).astype(np.float32), rng.normal(size=(24, 5)).astype(np.float32)
    x = (10**size * rng.normal(size=(count, 6))).astype(np.float32)
    write(path, first, second)
    quantise_onnx(path)
    assert [part.name for part in path.parent.iterdir()] == ["model.onnx"]
    graph = onnx.load(path).graph
    assert [node.name for node in graph.node if node.op_type == "MatMul"] == ["product-0"]
    (found,) = open_session(path).run(None, {"x": x})
    hidden = x.astype(np.float64) @ first
    # Half a step of each activation and weight, and the product of both; the steps of 7 bits are max / 63 at most.
    step = (max(0.0, hidden.max()) - min(0.0, hidden.min())) / 255
    steps = np.abs(second).max(axis=0) / 63
    bound = step * np.abs(second).sum(axis=0) + np.abs(hidden).sum(axis=1)[:, None] * steps + 24 * step * steps
    assert (np.abs(found - hidden @ second) <= bound + 1e-5 * np.abs(hidden).max()).all()


def test_a_graph_without_a_later_product_is_refused_and_stays(tmp_path: Path) -> None:
    write(tmp_path / "model.onnx", np.ones((4, 3), np.float32))
    before = (tmp_path / "model.onnx").read_bytes()
    with pytest.raises(ModelError, match=r"model\.onnx: expected products behind the first ones, found none"):
        quantise_onnx(tmp_path / "model.onnx")
    assert (tmp_path / "model.onnx").read_bytes() == before

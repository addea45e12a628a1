"""Int8 storage of the weights of an ONNX model, for models whose weights are rounded to eight bits already."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from tsfmscope.compression.onnx_files import save_onnx
from tsfmscope.models.common import int8


def pack_weights(path: Path) -> None:
    """Store the rounded matrices of an ONNX model as int8, with a scale per row; forecasts stay the same.

    The nodes Cast and Mul give the float32 weight, which onnxruntime computes once, when the model is opened. (It
    would fuse DequantizeLinear with a product into a product in eight bits, whose results differ.) A weight counts as
    rounded if whole numbers and scales give it back bit for bit, by rows of its first or of its last dimension. Weights
    of a data file are read one at a time.
    """
    import onnx
    from onnx import TensorProto, external_data_helper, helper, numpy_helper

    model = onnx.load(path, load_external_data=False)
    graph, nodes, kept = model.graph, [], []
    for weight in graph.initializer:
        if weight.external_data:
            external_data_helper.load_external_data_for_tensor(weight, str(path.parent))
            weight.data_location = TensorProto.DEFAULT
            del weight.external_data[:]
        packed = _pack(numpy_helper.to_array(weight))
        if packed is None:
            kept.append(weight)
            continue
        weight.ClearField("raw_data")
        names = [f"{weight.name}::int8", weight.name + int8.SCALE]
        kept += [numpy_helper.from_array(array, name) for name, array in zip(names, packed, strict=True)]
        nodes.append(helper.make_node("Cast", names[:1], [f"{weight.name}::float"], to=TensorProto.FLOAT))
        nodes.append(helper.make_node("Mul", [f"{weight.name}::float", names[1]], [weight.name]))
    body = list(graph.node)
    del graph.initializer[:], graph.node[:]
    graph.initializer.extend(kept)
    graph.node.extend(nodes + body)
    save_onnx(model, path)


def _pack(weight: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
    """Return whole numbers, and scales of a shape that broadcasts; None for a weight that is not rounded."""
    import torch

    if weight.dtype != np.float32 or weight.ndim < 2:
        return None
    for axis in (0, weight.ndim - 1):
        rows: Any = torch.from_numpy(np.moveaxis(weight, axis, 0).copy())
        if not int8.is_roundable(rows) or not bool(torch.isfinite(rows).all()):
            continue
        numbers, scales = int8.quantise(rows)
        if torch.equal(int8.dequantise(numbers, scales), rows):
            shape = [-1 if dimension == axis else 1 for dimension in range(weight.ndim)]
            return np.ascontiguousarray(np.moveaxis(numbers.numpy(), 0, axis)), scales.numpy().reshape(shape)
    return None

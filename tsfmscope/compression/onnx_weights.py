"""Weights of an ONNX model: int8 storage, int8 products, and a data file above 2 GiB, protobuf's limit."""

from __future__ import annotations

import logging
import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from tsfmscope.errors import ModelError
from tsfmscope.models.common import int8

# Bytes of weights above which they are in a data file: protobuf's limit is 2 GiB, and the graph takes a part of it.
LARGEST_FILE = 1_900_000_000


def data_path(path: Path) -> Path:
    """Return the path of a model's data file, in the same folder; the model has its name without the folder."""
    return path.with_name(f"{path.name}.data")


def needs_data_file(size: int) -> bool:
    """Whether so many bytes of weights are stored in a data file."""
    return size > LARGEST_FILE


def save_onnx(model: Any, path: Path) -> None:
    """Replace the files of an ONNX model by those of an onnx.ModelProto, all of whose weights are in memory.

    Weights that do not fit into the model's file are written to `data_path(path)`, one after another as onnx does.
    """
    import onnx

    size = sum(len(weight.raw_data) for weight in model.graph.initializer)
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=".onnx-") as folder:
        written = Path(folder) / path.name
        onnx.save(
            model,
            written,
            save_as_external_data=needs_data_file(size),
            all_tensors_to_one_file=True,
            location=data_path(written).name,
        )
        if data_path(written).exists():
            os.replace(data_path(written), data_path(path))
        else:
            data_path(path).unlink(missing_ok=True)
        os.replace(written, path)


def quantise_onnx(path: Path) -> None:
    """Replace an ONNX model by one whose matrix products have int8 weights and activations.

    Weights get a scale per output; activations get a scale per product, from their values in each run (dynamic
    quantisation). A small model may become larger, since the scales are new nodes. Weights use 7 of the 8 bits: on CPUs
    without VNNI instructions, sums of products of 8 bits overflow (onnxruntime's manual, "Quantize ONNX models").
    Products that read the scaled series itself stay in float32, since their inputs have the largest range: in a trained
    Chronos-Bolt they alone had half of the differences. A head that reads one state per series (a Gemm, in TimesFM)
    stays in float32, too: in int8, the mean difference of timesfm-mini is 0.66 standard deviations instead of 0.19.
    Raises ModelError if no product is left.
    """
    import onnx
    from onnxruntime.quantization import QuantType, quantize_dynamic

    model = onnx.load(path, load_external_data=False)
    products, first = _products(model.graph), _first_products(model.graph)
    if not products - first:
        raise ModelError(f"{path.name}: expected products behind the first ones, found none; export without --bits")
    logger = logging.getLogger()
    level = logger.level
    # It advises a preparation that its own documentation calls optional.
    logger.setLevel(logging.ERROR)
    try:
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=".int8-") as folder:
            quantised = Path(folder) / path.name
            quantize_dynamic(
                path,
                quantised,
                weight_type=QuantType.QInt8,
                per_channel=True,
                reduce_range=True,
                nodes_to_quantize=sorted(products - first),
                # What is not a product stays in float32, so that the result may be above 2 GiB too.
                use_external_data_format=data_path(path).exists(),
                extra_options={"MatMulConstBOnly": True},
            )
            model = onnx.load(quantised)
    finally:
        logger.setLevel(level)
    save_onnx(model, path)


def _products(graph: Any) -> set[str]:
    """Return the names of the MatMul nodes whose second factor is a weight matrix."""
    weights = {weight.name for weight in graph.initializer}
    return {node.name for node in graph.node if node.op_type == "MatMul" and node.input[1] in weights}


def _first_products(graph: Any) -> set[str]:
    """Return those of the products that read values of the graph's inputs with no other product between."""
    products, first = _products(graph), set()
    before, after = {value.name for value in graph.input}, set[str]()
    for node in graph.node:  # sorted: a node comes after those that give its inputs
        if node.op_type == "Shape":  # reads the number of series, not their values
            continue
        is_later, reads = (any(name in values for name in node.input) for values in (after, before))
        if reads and not is_later and node.name in products:
            first.add(node.name)
        if is_later or node.name in products:
            after.update(node.output)
        elif reads:
            before.update(node.output)
    return first


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

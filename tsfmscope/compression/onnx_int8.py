"""Int8 weights and activations of an ONNX model, by onnxruntime's dynamic quantisation."""

from __future__ import annotations

import logging
import tempfile
from pathlib import Path
from typing import Any

from tsfmscope.compression.onnx_files import data_path, save_onnx
from tsfmscope.errors import ModelError


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

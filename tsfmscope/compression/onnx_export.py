"""Export of a forecast as an ONNX model, which onnxruntime runs without torch and without this project."""

from __future__ import annotations

import json
import logging
import math
import os
import tempfile
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from jaxtyping import Float32, UInt8

from tsfmscope.compression.budget import fastest
from tsfmscope.compression.onnx_forecaster import DESCRIPTION, MODEL, first_line, n_threads, open_session, run_session
from tsfmscope.compression.rounding import round_plainly
from tsfmscope.errors import ModelError
from tsfmscope.models.base import Forecaster
from tsfmscope.models.common.low_bits import SHORTEST, Packed, find_grid, to_bytes
from tsfmscope.models.common.scale import mean_and_deviation
from tsfmscope.series.types import Windows

if TYPE_CHECKING:
    import torch

    from tsfmscope.models.base import Family
    from tsfmscope.models.types import ForecastGraph

# Largest difference from the model's own forecast, in standard deviations of the context, or in the largest distance of
# that forecast from the context's mean, if that is larger.
TOLERANCE = 1e-4
# Series of a timed forecast.
TIMED = 8
# One frequency of each id of TimesFM 2.0.
FREQUENCIES = ("D", "W", "Q")

# Domain of onnxruntime's own operators. Groups of its products with few bits: of matrices that are not rounded yet, and
# the largest that it has.
ONNXRUNTIME = "com.microsoft"
LOW_GROUP, LARGEST_GROUP = 32, 256
# Bytes of weights above which they are in a data file: protobuf's limit is 2 GiB, and the graph takes a part of it.
LARGEST_FILE = 1_900_000_000


@dataclass(frozen=True)
class OnnxModel:
    """ONNX model that was written and checked.

    levels: of the quantiles. bits: of matrix products, 32, 8 or 4. bytes: size of the model's files.
    difference, mean_difference: largest and mean difference from the model's own forecast of `series` random series, in
    the unit of TOLERANCE. torch_seconds, onnxruntime_seconds: of a forecast of `timed_series` series with
    `threads` threads. float_bytes, float_seconds: of the same ONNX model with float32 weights.
    """

    folder: Path
    context: int
    horizon: int
    levels: tuple[float, ...]
    opset: int
    bits: int
    bytes: int
    float_bytes: int
    series: int
    difference: float
    mean_difference: float
    timed_series: int
    threads: int
    torch_seconds: float
    float_seconds: float
    onnxruntime_seconds: float


def write_onnx(
    model: Family, folder: Path, *, context: int | None, horizon: int | None, origin: Mapping[str, Any], bits: int = 32
) -> OnnxModel:
    """Write MODEL and DESCRIPTION to a folder, after a check that forecasts are the model's own.

    Weights of 2 GiB and more are in a data file next to MODEL.

    context, horizon: steps of the ONNX model's input and output; None: the model's largest. origin: further entries of
    DESCRIPTION, such as the base model. bits: 32, or 8 or 4 for a model that passed the check and is then quantised
    (`quantise_onnx`, `use_low_bit_products`), whose forecasts differ. Except with 8, rounded weights of a compressed
    model are stored in their bits.
    Raises ValueError for a context or horizon out of range. Raises ModelError for a family without a
    `forecast_graph`, for a model that cannot be exported, and for forecasts that differ by more than TOLERANCE.
    Raises ModuleNotFoundError if packages of the extra onnx are missing.
    """
    import onnx
    import onnxruntime
    import onnxscript

    assert onnx and onnxruntime and onnxscript
    graph = model.forecast_graph() if isinstance(model, Forecaster) else None
    if graph is None or not isinstance(model, Forecaster):
        raise ModelError(
            f"family {model.name}: expected one whose forecast is one forward pass that gives quantiles "
            "(docs/compression.md, section ONNX, lists them), found none; export without --onnx"
        )
    context = _check_steps("context", context, graph.context)
    horizon = _check_steps("horizon", horizon, graph.horizon)
    folder.mkdir(parents=True, exist_ok=True)
    opset = _trace(graph, context, horizon, folder / MODEL, model.name)
    checks = [
        random_windows(context, horizon, freq) for freq in (FREQUENCIES if graph.reads_frequency else FREQUENCIES[:1])
    ]
    of_float = measured = _require_same(_measure(model, graph, folder, checks), model.name)
    if bits == 8:
        quantise_onnx(folder / MODEL)
    elif bits == 4:
        use_low_bit_products(folder / MODEL)
    if bits != 8 and model.compression is not None:
        pack_weights(folder / MODEL)
    if bits != 32:
        measured = _measure(model, graph, folder, checks)
    elif model.compression is not None:
        measured = _require_same(_measure(model, graph, folder, checks), model.name)
    exported = OnnxModel(
        folder=folder, context=context, horizon=horizon, levels=graph.levels, opset=opset, bits=bits,
        bytes=measured.bytes, float_bytes=of_float.bytes, series=sum(map(len, checks)), difference=measured.difference,
        mean_difference=measured.mean_difference, timed_series=TIMED, threads=n_threads(),
        torch_seconds=fastest(lambda: _forecast(model, graph, checks[0].take(slice(TIMED)))),
        float_seconds=of_float.seconds, onnxruntime_seconds=measured.seconds,
    )  # fmt: skip
    files = {path.name: path.stat().st_size for path in sorted(folder.iterdir())}
    facts = _describe(exported, graph, model) | {"files": files} | dict(origin)
    (folder / DESCRIPTION).write_text(json.dumps(facts, indent=2) + "\n")
    return exported


def random_windows(context: int, horizon: int, freq: str) -> Windows:
    """Return random walks with a season at several scales, with gaps, short contexts and constant values."""
    rng = np.random.default_rng(0)
    steps = np.arange(context)
    walks = rng.normal(size=(12, context)).cumsum(axis=1) / np.sqrt(context)
    walks += np.sin(2 * np.pi * steps / rng.integers(4, 40, size=(12, 1))) + rng.normal(size=(12, 1))
    walks *= 10.0 ** np.array([0, 0, 3, -3, 6, 0, 0, 0, 0, 0, 0, 25])[:, None]
    # Without a negative step.
    walks[1] = np.abs(walks[1])
    # Missing steps: a tenth at random, one long gap, the last steps.
    walks[2:5][rng.random((3, context)) < 0.1] = np.nan
    walks[5, context // 3 : context // 2] = np.nan
    walks[6, -max(1, context // 10) :] = np.nan
    # Series shorter than the context, down to one step.
    for row, observed in ((7, context // 2), (8, min(20, context)), (9, 1)):
        walks[row, : context - max(1, observed)] = np.nan
    walks[10] = 3.0
    values = walks.astype(np.float32)
    # A context without a step has no scale: at least the last one is observed, except where the end is missing.
    values[2:6, -1] = 1.0
    count = len(values)
    future = np.zeros((count, horizon), np.float32)
    return Windows(values, future, [str(row) for row in range(count)], np.full(count, context), "random", freq, 1)


def _check_steps(name: str, steps: int | None, largest: int) -> int:
    if steps is not None and not 1 <= steps <= largest:
        raise ValueError(f"{name}: got {steps}, expected 1 to {largest}, which the model reads or gives in one pass")
    return largest if steps is None else steps


def _trace(graph: ForecastGraph, context: int, horizon: int, path: Path, family: str) -> int:
    """Write the ONNX model and return its opset. Raises ModelError if the exporter cannot trace the family."""
    import torch

    module = graph.make(context, horizon).eval()
    batch = torch.export.Dim("batch")
    # Two rows, since the exporter takes a size of 1 for a constant.
    inputs: dict[str, torch.Tensor] = {"context": torch.arange(2.0 * context).reshape(2, context)}
    if graph.reads_frequency:
        inputs["frequency"] = torch.zeros(2, dtype=torch.int64)
    try:
        # The exporter warns about its own code and about packages that it does not need.
        with _only_errors("torch.onnx"), warnings.catch_warnings(action="ignore"), torch.no_grad():
            program = torch.onnx.export(
                module, tuple(inputs.values()), dynamo=True, verbose=False, input_names=list(inputs),
                output_names=["quantiles"], dynamic_shapes={name: {0: batch} for name in inputs},
            )  # fmt: skip
            assert program is not None
            # Notes for debugging, such as lines of Python: up to half of a small model's file.
            for node in program.model.graph.all_nodes():
                node.metadata_props.clear()
            weights = (value.const_value for value in program.model.graph.initializers.values())
            size = sum(weight.nbytes for weight in weights if weight is not None)
            program.save(path, external_data=size > LARGEST_FILE)
    # The exporter's errors have no common class.
    except Exception as error:
        raise ModelError(
            f"family {family}: torch {torch.__version__} cannot export the forecast as ONNX ({first_line(error)}); "
            "export without --onnx"
        ) from error
    return int(program.model.opset_imports[""])


class _Measured(NamedTuple):
    """A written model: its differences in the unit of TOLERANCE, seconds of a forecast, and bytes."""

    difference: float
    mean_difference: float
    seconds: float
    bytes: int


def _measure(model: Forecaster, graph: ForecastGraph, folder: Path, checks: list[Windows]) -> _Measured:
    """Compare forecasts of the ONNX model with the model's own, for each batch and its first window alone."""
    session, largest, means = open_session(folder / MODEL), [], []
    for windows in checks:
        own = _forecast(model, graph, windows).astype(np.float64)
        mean, deviation = (part[:, None, None] for part in mean_and_deviation(windows.context))
        # From a single step some models forecast values that are many deviations away.
        scale = np.maximum(deviation, np.abs(own - mean).max(axis=(1, 2), keepdims=True))
        whole, first = (
            np.abs(run_session(session, windows.context[part], windows.freq) - own[part]) / scale[part]
            for part in (slice(None), slice(1))
        )
        largest += [whole.max(), first.max()]
        means.append(whole.mean())
    seconds = fastest(lambda: run_session(session, checks[0].context[:TIMED], checks[0].freq))
    size = sum(path.stat().st_size for path in folder.iterdir())
    return _Measured(float(np.max(largest)), float(np.mean(means)), seconds, size)


def _require_same(measured: _Measured, family: str) -> _Measured:
    """Return the measurements; ModelError if forecasts differ by more than TOLERANCE from the model's own."""
    if not measured.difference <= TOLERANCE:
        raise ModelError(
            f"family {family}: forecasts of the ONNX model differ from the model's own by {measured.difference:.2g} of "
            f"the context's standard deviation or the forecast's size, expected at most {TOLERANCE:g}; export without "
            "--onnx, and report it"
        )
    return measured


def _forecast(model: Forecaster, graph: ForecastGraph, windows: Windows) -> np.ndarray:
    return model.forecast(windows, levels=graph.levels, seeds=[0] * len(windows)).values


def _describe(exported: OnnxModel, graph: ForecastGraph, model: Family) -> dict[str, Any]:
    """Return the contents of DESCRIPTION."""
    inputs = [{"name": "context", "type": "float32", "shape": ["batch", exported.context]}]
    if graph.reads_frequency:
        inputs.append({"name": "frequency", "type": "int64", "shape": ["batch"]})
    shape = ["batch", len(exported.levels), exported.horizon]
    record = asdict(exported)
    check = {name: record[name] for name in ("series", "difference", "mean_difference")}
    return {
        "family": model.name, "compression": model.compression, "inputs": inputs,
        "outputs": [{"name": "quantiles", "type": "float32", "shape": shape}],
        **{name: record[name] for name in ("context", "horizon", "levels", "opset", "bits")},
        "check": check | {"tolerance": TOLERANCE if exported.bits == 32 else None},
    }  # fmt: skip


@contextmanager
def _only_errors(name: str | None) -> Iterator[None]:
    """Let a logger print errors only; None: the root logger."""
    logger, handler = logging.getLogger(name), logging.NullHandler()
    level = logger.level
    logger.setLevel(logging.ERROR)
    # Without a handler of the root logger, `logging.warning` of a package would install one that prints everything.
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)


def data_path(path: Path) -> Path:
    """Return the path of a model's data file, in the same folder; the model has its name without the folder."""
    return path.with_name(f"{path.name}.data")


def save_onnx(model: Any, path: Path) -> None:
    """Replace the files of an ONNX model by those of an onnx.ModelProto, all of whose weights are in memory.

    Weights that do not fit into the model's file are written to `data_path(path)`, one after another as onnx does.
    """
    import onnx

    size = sum(len(weight.raw_data) for weight in model.graph.initializer)
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=".onnx-") as folder:
        written = Path(folder) / path.name
        onnx.save(
            model, written, save_as_external_data=size > LARGEST_FILE, all_tensors_to_one_file=True,
            location=data_path(written).name,
        )  # fmt: skip
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

    products = _later_products(onnx.load(path, load_external_data=False).graph, path)
    # onnxruntime advises a preparation that its own documentation calls optional.
    with _only_errors(None), tempfile.TemporaryDirectory(dir=path.parent, prefix=".int8-") as folder:
        quantised = Path(folder) / path.name
        # What is not a product stays in float32, so that the result may be above 2 GiB too.
        quantize_dynamic(
            path, quantised, weight_type=QuantType.QInt8, per_channel=True, reduce_range=True,
            nodes_to_quantize=sorted(products), use_external_data_format=data_path(path).exists(),
            extra_options={"MatMulConstBOnly": True},
        )  # fmt: skip
        model = onnx.load(quantised)
    save_onnx(model, path)


def use_low_bit_products(path: Path) -> None:
    """Replace an ONNX model by one whose matrix products are onnxruntime's own with few bits (`MatMulNBits`).

    The numbers of a rounded matrix (`find_grid`) stay as they are: those of up to four bits are stored in four, others
    in eight. Any other matrix is rounded to the nearest numbers of four bits in groups of LOW_GROUP. Only products with
    eight bits round activations, too, to eight bits by group: with float32 activations they took 1.5 to 15 times as
    long as those of float32 matrices. As in `quantise_onnx`, products that read the scaled series itself and Gemm stay.
    Weights of a data file are read one at a time.
    Raises ModelError if no product is left.
    """
    import onnx
    from onnx import helper

    model = onnx.load(path, load_external_data=False)
    graph = model.graph
    chosen = _later_products(graph, path)
    uses = Counter(name for node in graph.node for name in node.input)
    weights: dict[str, list[Any]] = {}
    for node in graph.node:
        if node.name in chosen:
            weights.setdefault(node.input[1], []).append(node)
    kept = []
    for weight in graph.initializer:
        array = _read_weight(weight, path)
        nodes = weights.get(weight.name, [])
        # What other nodes read too, such as an embedding that is the head, would be stored twice.
        if len(nodes) != uses[weight.name] or not nodes or array.ndim != 2 or array.dtype != np.float32:
            kept.append(weight)
            continue
        numbers, scales, attributes = _low_bit_factors(np.ascontiguousarray(array.T))
        names = [f"{weight.name}::{part}" for part in ("numbers", "scales")]
        kept += [onnx.numpy_helper.from_array(part, name) for part, name in zip((numbers, scales), names, strict=True)]
        for node in nodes:
            node.CopyFrom(
                helper.make_node(
                    "MatMulNBits", [node.input[0], *names], list(node.output), node.name, domain=ONNXRUNTIME,
                    **attributes,
                )
            )  # fmt: skip
    del graph.initializer[:]
    graph.initializer.extend(kept)
    model.opset_import.append(helper.make_opsetid(ONNXRUNTIME, 1))
    save_onnx(model, path)


def _low_bit_factors(
    rows: Float32[np.ndarray, "row column"],
) -> tuple[UInt8[np.ndarray, "row group byte"], Float32[np.ndarray, "row group"], dict[str, int]]:
    """Return the numbers, the scales and the attributes of a MatMulNBits whose outputs are the rows of a matrix."""
    columns = rows.shape[1]
    packed = find_grid(rows) if columns >= SHORTEST else None
    if packed is None:
        packed = find_grid(round_plainly(rows.astype(np.float64), 4, LOW_GROUP, np.ones(columns)).astype(np.float32))
    assert packed is not None
    # Of one scale per row: the largest group that divides the row. A power of two, as onnxruntime expects.
    group = packed.group or max(LOW_GROUP, math.gcd(columns, LARGEST_GROUP))
    bits = 4 if packed.bits <= 4 else 8
    shifted = packed.numbers.astype(np.int16) + 2 ** (bits - 1)
    groups = -(-columns // group)
    padded = np.pad(shifted, ((0, 0), (0, groups * group - columns)), constant_values=2 ** (bits - 1)).astype(np.uint8)
    stored: np.ndarray = padded.reshape(len(rows), groups, group)
    if bits == 4:
        stored = stored[:, :, ::2] | stored[:, :, 1::2] << 4
    scales = np.broadcast_to(packed.scales, (len(rows), groups)) if packed.group == 0 else packed.scales
    # 1: float32 activations; 4: int8.
    level = 1 if bits == 4 else 4
    attributes = {"K": columns, "N": len(rows), "bits": bits, "block_size": group, "accuracy_level": level}
    return stored, np.ascontiguousarray(scales), attributes


def _later_products(graph: Any, path: Path) -> set[str]:
    """Return the names of the products but those of `_first_products`; ModelError if there are none."""
    later = _products(graph) - _first_products(graph)
    if not later:
        raise ModelError(f"{path.name}: expected products behind the first ones, found none; export without --bits")
    return later


def _read_weight(weight: Any, path: Path) -> np.ndarray:
    """Return the values of an initializer, and take them into the model if they are in its data file."""
    from onnx import TensorProto, external_data_helper, numpy_helper

    if weight.external_data:
        external_data_helper.load_external_data_for_tensor(weight, str(path.parent))
        weight.data_location = TensorProto.DEFAULT
        del weight.external_data[:]
    array: np.ndarray = numpy_helper.to_array(weight)
    return array


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
    """Store the rounded matrices of an ONNX model in their bits; forecasts stay the same.

    The numbers of all matrices of equal bits are one tensor of bytes. A few nodes, which onnxruntime computes once when
    the model is opened, give the float32 weights. (It would fuse DequantizeLinear with a product into a product in
    eight bits, whose results differ.) A weight counts as rounded if `find_grid` finds its numbers, by rows of its first
    or of its last dimension. Weights of a data file are read one at a time.
    """
    import onnx

    model = onnx.load(path, load_external_data=False)
    graph, kept = model.graph, []
    by_bits: dict[int, list[_Rounded]] = {}
    for weight in graph.initializer:
        array = _read_weight(weight, path)
        if (rounded := _find_rounded(weight.name, array)) is None:
            kept.append(weight)
        else:
            by_bits.setdefault(rounded.packed.bits, []).append(rounded)
    unpacking = _Unpacking()
    for bits, weights in by_bits.items():
        unpacking.add(bits, weights)
    body = list(graph.node)
    del graph.initializer[:], graph.node[:]
    graph.initializer.extend([*kept, *unpacking.initializers])
    graph.node.extend(unpacking.nodes + body)
    save_onnx(model, path)


class _Rounded(NamedTuple):
    """Weight of an ONNX model: its numbers by rows, and whether the rows are its last dimension."""

    name: str
    shape: tuple[int, ...]
    packed: Packed
    is_turned: bool


def _find_rounded(name: str, weight: np.ndarray) -> _Rounded | None:
    """Return a weight's numbers; None if it is not rounded, or in groups of different lengths."""
    if weight.dtype != np.float32 or weight.ndim < 2:
        return None
    for is_turned in (False, True):
        rows = np.moveaxis(weight, -1, 0) if is_turned else weight
        rows = np.ascontiguousarray(rows.reshape(len(rows), -1))
        packed = find_grid(rows) if rows.shape[1] >= SHORTEST else None
        if packed is not None and rows.shape[1] % (packed.group or 1) == 0:
            return _Rounded(name, weight.shape, packed, is_turned)
    return None


class _Unpacking:
    """Nodes and initializers that give the weights of `_Rounded`."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.initializers: list[Any] = []

    def add(self, bits: int, weights: Sequence[_Rounded]) -> None:
        """Add the weights of equal bits."""
        from onnx import TensorProto, helper

        # Eight numbers of `bits` bits take `bits` bytes. Each is in one or two of them, which are read as 16 bits.
        flat = np.concatenate([weight.packed.numbers.ravel() for weight in weights])
        sizes = [weight.packed.numbers.size for weight in weights]
        padding = -len(flat) % 8
        stored = to_bytes(np.concatenate([flat, np.zeros(padding, np.int8)]), bits).reshape(-1, bits)
        first_bits = np.arange(8) * bits
        first = first_bits // 8
        second = np.minimum(first + 1, bits - 1)
        shifts = 2 ** (16 - bits - first_bits % 8)
        wide = self._node("Cast", [self._constant(stored)], to=TensorProto.INT32)
        high, low = (self._node("Gather", [wide, self._constant(index)], axis=1) for index in (first, second))
        pairs = self._node("Add", [self._node("Mul", [high, self._constant(np.int32(256))]), low])
        part = self._node(
            "Mod",
            [self._node("Div", [pairs, self._constant(shifts.astype(np.int32))]), self._constant(np.int32(2**bits))],
        )
        numbers = self._node(
            "Cast", [self._node("Sub", [part, self._constant(np.int32(2 ** (bits - 1)))])], to=TensorProto.FLOAT
        )
        line = self._node("Reshape", [numbers, self._constant(np.array([-1]))])
        scales = np.concatenate([weight.packed.scales.ravel() for weight in weights])
        words = (scales.view(np.uint32) >> 16).astype(np.uint16)
        name = f"packed::{len(self.initializers)}"
        self.initializers.append(helper.make_tensor(name, TensorProto.BFLOAT16, words.shape, words.tobytes(), raw=True))
        line_of_scales = self._node("Cast", [name], to=TensorProto.FLOAT)
        parts = self._split(line, sizes + ([padding] if padding else []))
        parts_of_scales = self._split(line_of_scales, [weight.packed.scales.size for weight in weights])
        for weight, values, factors in zip(weights, parts, parts_of_scales, strict=False):
            self._multiply(weight, values, factors)

    def _multiply(self, weight: _Rounded, values: str, factors: str) -> None:
        """Add the nodes that give one weight under its name."""
        rows, groups = weight.packed.scales.shape
        grouped = self._node("Reshape", [values, self._constant(np.array([rows, groups, -1]))])
        scaled = self._node(
            "Mul", [grouped, self._node("Reshape", [factors, self._constant(np.array([rows, groups, 1]))])]
        )
        shape = (weight.shape[-1], *weight.shape[:-1]) if weight.is_turned else weight.shape
        shaped = self._node(
            "Reshape", [scaled, self._constant(np.array(shape))], None if weight.is_turned else weight.name
        )
        if weight.is_turned:
            self._node("Transpose", [shaped], weight.name, perm=[*range(1, len(shape)), 0])

    def _split(self, value: str, sizes: Sequence[int]) -> list[str]:
        from onnx import helper

        names = [f"packed::split::{len(self.nodes)}::{number}" for number in range(len(sizes))]
        self.nodes.append(helper.make_node("Split", [value, self._constant(np.array(sizes))], names, axis=0))
        return names

    def _constant(self, value: Any) -> str:
        from onnx import numpy_helper

        name = f"packed::{len(self.initializers)}"
        self.initializers.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def _node(self, operator: str, inputs: Sequence[str], output: str | None = None, **attributes: Any) -> str:
        from onnx import helper

        output = output or f"packed::node::{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, inputs, [output], **attributes))
        return output

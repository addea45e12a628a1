"""Compression of a loaded model by any method, and the sizes and errors of the result."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Container, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tsfmscope.compression import lems, truncation, two_step, whole_model
from tsfmscope.compression.calibration_data import CalibrationData
from tsfmscope.compression.calibration_windows import calibration_series
from tsfmscope.compression.candidates import inert_matrices
from tsfmscope.compression.export import save
from tsfmscope.compression.methods.registry import TRUNCATIONS
from tsfmscope.compression.options import Calibration, Method
from tsfmscope.compression.timing import SavedSeconds, forecast_seconds, measure
from tsfmscope.errors import ModelError
from tsfmscope.models.common import int8
from tsfmscope.models.common.attention import NAMES
from tsfmscope.models.common.checksums import write_recipe
from tsfmscope.requested_size import requested_size
from tsfmscope.series.content import CALIBRATION_SERIES

if TYPE_CHECKING:
    import pyarrow as pa

    from tsfmscope.models.base import Family

# Number of windows that are forecast together when forecasts are timed, as in bench/compression.py
TIMED = 4


def compress_model(
    model: Family,
    method: Method,
    *,
    base_model: str,
    tables: Mapping[str, pa.Table],
    calibration: Calibration | None = None,
) -> list[dict[str, Any]]:
    """Compress a model in place; return one row per layer and part.

    base_model: the model's name, for errors. tables:
    calibration series by data set. calibration: for a method that reads
    data or measures time; forecasts of windows of its first data set are timed, TIMED or, with `whole-model`,
    `whole_model.TIMED` of them. ModelError, before any calibration, for a model that contains thin factors, and for a
    family without attention layers.
    """
    layers = list(model.attentions())
    if not layers:
        raise ModelError(
            f"{base_model}: family {model.name} describes no attention layers, so it cannot be compressed; choose a "
            "model of a family that does (docs/compression.md)"
        )
    truncation.refuse_factors(layers, base_model)
    data, saved = CalibrationData(model, tables, calibration), None
    if method.ranks.time is not None and method.method != whole_model.METHOD:
        saved = measure(model, forecast_seconds(data.timed_windows(TIMED)))
    return compress_with(model, method, data, saved)


def compress_with(
    model: Family, method: Method, data: CalibrationData, saved: SavedSeconds | None = None
) -> list[dict[str, Any]]:
    """Compress a model without factors in place, as `compress_model` does, with given calibration data.

    saved: the seconds that narrower heads save, for the rule `time` of all methods but `whole-model`.
    """
    name = method.method
    if name in two_step.METHODS:
        return two_step.compress(model, method, data.tokens)
    if name == whole_model.METHOD:
        timed = data.timed_windows(whole_model.TIMED) if method.ranks.time is not None else None
        return whole_model.compress(model, method, data.tokens, timed)
    if name == lems.METHOD:
        return lems.compress(model, method, data.tokens, data.statistics("gradients"))
    return truncation.compress(model, method, data.statistics(TRUNCATIONS[name].reads), saved)


def reduce_bits(model: Family, method: Method) -> None:
    """Round all weights of a compressed model, in place, if its method has `bits` 8; the last step."""
    if method.bits == int8.BITS:
        int8.round_weights(model.network)
        model.compression = {**(model.compression or {}), int8.KEY: int8.BITS}


def sizes(model: Family) -> dict[str, int]:
    """Return the numbers of parameters of the network (shared ones once) and of its attention layers."""
    attention = [layer.linear(name) for layer in model.attentions() for name in NAMES]
    return {
        "parameters": sum(parameter.numel() for parameter in model.network.parameters()),
        "attention_parameters": sum(parameter.numel() for linear in attention for parameter in linear.parameters()),
    }


def memory_bytes(model: Family) -> int:
    """Return the bytes that the network's parameters take in memory."""
    return sum(parameter.numel() * parameter.element_size() for parameter in model.network.parameters())


def save_compressed(
    model: Family,
    folder: Path,
    *,
    name: str,
    base_model: str,
    method: Method,
    tables: Mapping[str, pa.Table],
    calibration: Calibration | None = None,
    recipe: Mapping[str, Any],
    heal: Callable[[Family], list[Any]] | None = None,
) -> dict[str, Any]:
    """Compress a model in place, save it to a folder, and return its row of the table `compression`.

    method, tables, calibration: as in `compress_model`. recipe: further content of recipe.json, which also
    contains the row, and as `parts` the rows of the table `compressed_heads`. It is written last: a folder that
    has it is complete. Its `calibration_series` has the digests of the series that calibrate, and those of `recipe`,
    which calibrated a base that is compressed itself. heal: trains the compressed model in place before it is saved;
    recipe.json has its result as `healing`.
    """
    before, ranks = sizes(model), method.ranks.to_dict()
    idle = inert_matrices(model, univariate=method.univariate)
    parts = compress_model(model, method, base_model=base_model, tables=tables, calibration=calibration)
    healing = {"healing": heal(model)} if heal else {}
    reduce_bits(model, method)
    row = {
        "model": name,
        "base_model": base_model,
        **requested_size(ranks),
        "method": method.method,
        "ranks": json.dumps(ranks, sort_keys=True),
        **size_columns(before, sizes(model)),
        **error_columns(parts, idle),
    }
    named = [{"model": name, "base_model": base_model, **part} for part in parts]
    # A run that was stopped may have left an incomplete folder.
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    save(model, folder)
    seen = sorted({*recipe.get(CALIBRATION_SERIES, ()), *calibration_series(tables, calibration)})
    write_recipe(folder, {**recipe, "row": row, "parts": named, CALIBRATION_SERIES: seen, **healing})
    return row


def size_columns(before: Mapping[str, int], after: Mapping[str, int]) -> dict[str, Any]:
    """Return the columns of sizes: after, before, and their ratios."""
    return {
        **after,
        **{f"base_{name}": count for name, count in before.items()},
        "size_ratio": after["parameters"] / before["parameters"],
        "attention_ratio": after["attention_parameters"] / before["attention_parameters"],
    }


def error_columns(parts: Sequence[Mapping[str, Any]], idle: Container[tuple[str, str, str]]) -> dict[str, float]:
    """Return the mean of rank over full width, and the root mean square of relative errors, over parts.

    idle: matrices without effect, as `inert_matrices` lists them; their errors do not count. The error is 0 if
    all are idle.
    """
    ranks = [part["rank"] / part["full_width"] for part in parts]
    effective = []
    for part in parts:
        matrices = [(part["stack"], part["attention"], name) for name in part["part"]]
        if any(matrix not in idle for matrix in matrices):
            effective.append(part)
    errors = np.array([part["relative_error"] for part in effective])
    return {"rank_ratio": float(np.mean(ranks)), "error": float(np.sqrt(np.mean(errors**2))) if effective else 0.0}

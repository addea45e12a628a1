"""Compression of a loaded model by any method, and the sizes and errors of the result."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tsfmscope.compression import bits, truncation, two_step
from tsfmscope.compression.calibration import calibration_series, calibration_tokens, calibration_windows, equal_windows
from tsfmscope.compression.candidates import count_parameters, inert_matrices
from tsfmscope.compression.export import save
from tsfmscope.compression.options import METHODS, Calibration, Method, requested_size
from tsfmscope.errors import ModelError
from tsfmscope.models.common.checkpoint_folder import write_recipe
from tsfmscope.series.types import CALIBRATION_SERIES

if TYPE_CHECKING:
    import pyarrow as pa

    from tsfmscope.models.base import Family

# Number of windows that are forecast together when forecasts are timed, as in bench/compression.py
TIMED = 4
DRIVERS: dict[str, Callable[..., list[dict[str, Any]]]] = {
    "truncation": truncation.calibrate_and_compress,
    "two_step": two_step.compress,
}


def compress_model(
    model: Family, method: Method, *, base_model: str, tables: Mapping[str, pa.Table],
    calibration: Calibration | None = None, plan: bits.Plan | None = None,
) -> list[dict[str, Any]]:  # fmt: skip
    """Compress a model in place; return one row per layer and part.

    base_model: the model's name, for errors. tables: calibration series by data set. calibration: for a method that
    reads data or measures time; forecasts of TIMED windows of its first data set are timed. plan: for a share of bytes,
    the result of `bits.measure`, where it is known.
    ModelError, before any calibration, for a model that contains thin factors, and for a family without attention
    layers, of which only a share of bytes can be asked for.
    """
    if method.ranks.bytes is not None:
        if model.compression is not None:
            raise ModelError(f"{base_model}: is compressed; compress the original to a share of its bytes")
        if plan is None:
            assert calibration is not None, "a share of bytes reads data"
            plan = bits.measure(model, equal_windows(model, tables, calibration), univariate=method.univariate)
        return plan.apply(model, method)
    layers = list(model.attentions())
    if not layers:
        raise ModelError(
            f"{base_model}: family {model.name} describes no attention layers, so it cannot be compressed; choose a "
            "model of a family that does (docs/compression.md)"
        )
    truncation.refuse_factors(layers, base_model)
    entry = METHODS[method.method]
    if (entry.reads_data or method.ranks.time is not None) and calibration is None:
        raise ValueError(f"method {method.method}: expected calibration windows, got none")
    parts = calibration_tokens(model, tables, calibration) if entry.reads_data and calibration else []
    if method.ranks.time is None or calibration is None:
        return DRIVERS[entry.driver](model, method, parts)
    timed, *_ = calibration_windows(model, tables, calibration.model_copy(update={"windows": TIMED}))
    return DRIVERS[entry.driver](model, method, parts, timed)


def reduce_bits(model: Family, method: Method) -> None:
    """Round all weights of a compressed model, in place, if its method has `bits` 8; the last step."""
    if method.bits == 8:
        bits.round_network(model.network, method.bits)


def sizes(model: Family) -> dict[str, int]:
    """Return the numbers of parameters of the network (shared ones once) and of its attention layers."""
    parameters = sum(parameter.numel() for parameter in model.network.parameters())
    return {"parameters": parameters, "attention_parameters": count_parameters(list(model.attentions()))}


def memory_bytes(model: Family) -> int:
    """Return the bytes that the network's parameters take in memory."""
    return sum(parameter.numel() * parameter.element_size() for parameter in model.network.parameters())


def save_compressed(model: Family, folder: Path, *, recipe: Mapping[str, Any], **arguments: Any) -> dict[str, Any]:
    """Compress a model in place, save it to a folder, and return its row of the table `compression`.

    recipe: further content of recipe.json. arguments: those of `compress_and_record`.
    """
    record = compress_and_record(model, **arguments)
    # A run that was stopped may have left an incomplete folder.
    shutil.rmtree(folder, ignore_errors=True)
    save_with_record(model, folder, {**recipe, **record})
    row: dict[str, Any] = record["row"]
    return row


def save_with_record(model: Family, folder: Path, record: Mapping[str, Any]) -> None:
    """Save a compressed model to a new or empty folder; recipe.json, written last, contains the record."""
    folder.mkdir(parents=True, exist_ok=True)
    save(model, folder)
    write_recipe(folder, record)


def compress_and_record(
    model: Family, *, name: str, base_model: str, method: Method, tables: Mapping[str, pa.Table],
    calibration: Calibration | None = None, heal: Callable[[Family], list[Any]] | None = None,
    plan: bits.Plan | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Compress a model in place and return what recipe.json records of it.

    method, tables, calibration, plan: as in `compress_model`. heal: trains the compressed model in place. The record
    contains the `row` of the table `compression`, as `parts` the rows of the table `compressed_heads`, as
    `calibration_series` the digests of the series that calibrate, and as `healing` the result of `heal`.
    """
    before, ranks = sizes(model), method.ranks.to_dict()
    idle = inert_matrices(model, univariate=method.univariate)
    parts = compress_model(model, method, base_model=base_model, tables=tables, calibration=calibration, plan=plan)
    healing = {"healing": heal(model)} if heal else {}
    reduce_bits(model, method)
    after, attention = sizes(model), before["attention_parameters"]
    # Matrices without effect do not count in the error, which is 0 if all are idle.
    effective = [part for part in parts if {(part["stack"], part["attention"], name) for name in part["part"]} - idle]
    errors = np.array([part["relative_error"] for part in effective])
    row = {
        "model": name, "base_model": base_model, **requested_size(ranks), "method": method.method,
        "ranks": json.dumps(ranks, sort_keys=True), **after,
        **{f"base_{size}": count for size, count in before.items()},
        "size_ratio": after["parameters"] / before["parameters"],
        # 1 of a model without attention.
        "attention_ratio": after["attention_parameters"] / attention if attention else 1.0,
        "rank_ratio": float(np.mean([part["rank"] / part["full_width"] for part in parts])),
        "error": float(np.sqrt(np.mean(errors**2))) if effective else 0.0,
    }  # fmt: skip
    named = [{"model": name, "base_model": base_model, **part} for part in parts]
    return {"row": row, "parts": named, CALIBRATION_SERIES: sorted(calibration_series(tables, calibration)), **healing}

"""Function `compress` of the public Python API."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, get_args

import pandas as pd

from stages.config.defaults import params_here
from stages.config.params import ParamsError
from tsfmscope.cli.certifying import ModelPair
from tsfmscope.cli.compress_options import CompressOptions
from tsfmscope.cli.compressing import compress_and_judge
from tsfmscope.cli.inspection import InspectRequest, device_context
from tsfmscope.cli.provenance import calibration_of
from tsfmscope.compression.calibration_windows import calibration_series
from tsfmscope.compression.compress import compress_model, reduce_bits
from tsfmscope.compression.options import BITS, METHOD, WINDOWS, CalibrateOn, Method
from tsfmscope.errors import ModelError
from tsfmscope.functions.model import CompressedModel, Model, as_model, load_source
from tsfmscope.functions.user_data import Data, check_at_least, check_counts, list_items, usable_series
from tsfmscope.models.base import Family
from tsfmscope.training.healing import healer

METHODS: tuple[str, ...] = get_args(Method.model_fields["method"].annotation)
SOURCES: tuple[str, ...] = get_args(CalibrateOn)


def compress(
    model: Model | str | Path,
    data: Data | Sequence[Data],
    *,
    to: float | None = None,
    budget_seconds: float | None = None,
    method: str = METHOD,
    windows: int = WINDOWS,
    calibrate_on: CalibrateOn = "both",
    heal: int = 0,
    bits: int = 32,
    context: int | None = None,
    horizon: int | None = None,
    max_series: int | None = None,
    seed: int | None = None,
    columns: Mapping[str, Any] | None = None,
) -> CompressedModel:
    """Compress the attention of a model, or the whole model, as `tsfmscope compress` does.

    Args:
        model: a model that `load` returned, or its name or folder; it is not changed.
        data: one data set as in `inspect`, or a list of data sets; every file of a folder is a data set.
        to: share that is kept, in (0, 1]: of the attention parameters, or of the bytes of the weights in a file with
            the method "whole-model". None without `budget_seconds`: a quarter.
        budget_seconds: instead of `to`, for "whole-model": share of the original's seconds of a forecast, in (0, 1],
            measured on this machine.
        method: a method of docs/compression.md.
        windows: number of calibration windows per data set.
        calibrate_on: series that calibrate: "data" (the first 80 % of every series), "synthetic" or "both".
        heal: steps of training towards the outputs of the original, for example 300.
        bits: of every stored weight, embeddings included: 32, or 8 with one scale per row of a matrix. `whole-model`
            with `to` takes 8 in any case.
        context: as in `inspect`.
        horizon: steps of the compared forecasts, in the last 20 % of every series. None: that of each data set.
        max_series: as in `inspect`.
        seed: seed of windows and forecast samples.
        columns: columns of the tables, as in `inspect`.

    Returns:
        The compressed model. Its `costs` has one row per quantity, before and after: parameters, attention
        parameters, bytes in memory and in files and, for families that forecast, the seconds of a forecast, the
        weighted quantile loss (wql) and the mean absolute scaled error (mase) of the windows of `certify`.
        `judged` has one row per data set in `tasks`, and the `certificate`, as in `certify`.

    Raises:
        ValueError: the method is unknown, or another argument is out of range.
        ParamsError: `to` is too small for rank 1, no measured model meets `budget_seconds`, or the model does not read
            the data.
        DataError: no series can be read, calibrate or be judged.
        ModelError: the family cannot be compressed, or `model` was returned by this function.
    """
    check_counts(context=context, horizon=horizon, windows=windows, max_series=max_series)
    check_at_least(0, heal=heal)
    model = _compressible(model, method, to, calibrate_on, bits)
    try:
        options = CompressOptions(
            to, method, windows, calibrate_on=calibrate_on, heal=heal, bits=bits, budget_seconds=budget_seconds
        )
    except ParamsError as error:
        raise ValueError(str(error)) from None
    data_sets: list[Any] = list(data) if isinstance(data, list | tuple) else [data]
    if not data_sets:
        raise ValueError("data: got an empty list, expected a data set")
    params = params_here()
    series_seed = params.seed if seed is None else seed
    limit = params.datasets.max_series if max_series is None else max_series
    readers = {
        name: partial(usable_series, params, item, limit, series_seed, columns) for name, item in list_items(data_sets)
    }
    request = InspectRequest(
        model.name, "data", context=context, horizon=horizon, max_series=max_series, seed=seed, device=model.device
    )
    compressed = load_source(model.source.with_stored_options(), model.device)
    parts: list[dict[str, Any]] = []
    calibration = calibration_of(model.source.folder)
    seen = [*calibration.series]

    def make(arguments: Mapping[str, Any]) -> Family:
        seen.extend(calibration_series(arguments["tables"], arguments["calibration"]))
        train = healer(compressed.family, **arguments)
        parts.extend(compress_model(compressed.family, base_model=model.name, **arguments))
        if train:
            train(compressed.family)
        reduce_bits(compressed.family, arguments["method"])
        return compressed.family

    with device_context(model.device):
        pair = ModelPair(model.family, model.family, model.source, calibration)
        result = compress_and_judge(params, request, pair, readers, options, make)
    costs, label = pd.DataFrame(result.costs), f"{model.name}@{options.label}"
    return CompressedModel(
        label,
        compressed.family,
        compressed.source,
        model.device,
        costs,
        pd.DataFrame(parts),
        result.judged,
        sorted({*seen}),
    )


def _compressible(model: Model | str | Path, method: str, to: float | None, calibrate_on: str, bits: int) -> Model:
    """Return the model, loaded, after the arguments of `compress` are checked. Raises the errors of `compress`."""
    if method not in METHODS:
        raise ValueError(f"method: got {method!r}, expected one of {', '.join(METHODS)}")
    if calibrate_on not in SOURCES:
        raise ValueError(f"calibrate_on: got {calibrate_on!r}, expected one of {', '.join(SOURCES)}")
    if bits not in BITS:
        raise ValueError(f"bits: got {bits}, expected one of {', '.join(map(str, BITS))}")
    if to is not None and not 0 < to <= 1:
        raise ValueError(f"to: got {to}, expected a share in (0, 1]")
    model = as_model(model)
    if isinstance(model, CompressedModel):
        raise ModelError(f"{model.name}: already compressed; compress the original, or save this model and load it")
    return model

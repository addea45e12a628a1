"""Compression of a model's attention for `tsfmscope compress` and `tsfmscope.compress`, and what it costs.

The past of each series, and synthetic series, calibrate the compression. The end of each series measures the costs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from statistics import geometric_mean
from typing import TYPE_CHECKING, Any

from stages.config.params import Params, ParamsError
from stages.planning.model_reference import load_family, resolve
from stages.planning.named_sets import NamedSeries
from stages.planning.targets import check_new, new_folder
from tsfmscope.cli.certifying import (
    CertifyOptions,
    CertifyResult,
    ModelPair,
    build_task_case,
    certify_pair,
    check_models,
    open_data,
)
from tsfmscope.cli.compress_options import CompressOptions
from tsfmscope.cli.inspection import InspectRequest, LoadedCase, Watch, device_context
from tsfmscope.cli.progress import with_rate
from tsfmscope.cli.provenance import calibration_of, license_of_source
from tsfmscope.compression.options import CALIBRATED, Calibration
from tsfmscope.defaults import HELD_OUT
from tsfmscope.errors import DataError
from tsfmscope.series.types import count_reasons, describe_reasons

if TYPE_CHECKING:
    from tsfmscope.compression.timing import PairedSeconds
    from tsfmscope.models.base import Family
    from tsfmscope.models.licenses import License
    from tsfmscope.series.types import Windows

# Number of synthetic data sets, each with as many windows as a data set of the user.
SYNTHETIC = 8
# Function that gives the series of a data set.
Reader = Callable[[], NamedSeries]


@dataclass(frozen=True)
class CompressResult:
    """Result of the compression.

    costs: one row per quantity, with its values before and after. calibration: data set -> number of calibration
    windows; empty for a method without data. judged: the tasks and the certificate; None for a family that does
    not forecast. license: licence of the weights, which is that of the base model; None: not looked up. note: the
    final measurement, if it exceeds a budget in seconds.
    """

    costs: list[dict[str, Any]]
    calibration: dict[str, int] = field(default_factory=dict)
    judged: CertifyResult | None = None
    license: License | None = None
    note: str | None = None


def compress_attention(
    params: Params, request: InspectRequest, data: Sequence[str], options: CompressOptions, folder: Path, watch: Watch
) -> CompressResult:
    """Save the compressed model to a new or empty folder and return what the compression costs.

    The values after compression are those of the model as loaded from the folder. The folder is written last.
    data: names of data sets, files and folders; every file of a folder is a data set.
    Raises ParamsError for a folder that is not empty, a model that does not forecast, or a share that no rank can
    meet; and the errors of `compress_and_judge`.
    """
    from tsfmscope.compression.compress import save_compressed
    from tsfmscope.models.base import Forecaster
    from tsfmscope.training.healing import healer

    check_new(folder)
    readers = open_data(params, request, data)
    source = resolve(params, request.model, request.family).running_in(request.precision)
    with device_context(request.device):
        watch("loading the model", 0, 0)
        license = license_of_source(source)
        stated = {"license": license.name} if license.name else {}
        base, stored = load_family(source, request.device), source.with_stored_options()
        if not isinstance(base, Forecaster):
            raise ParamsError(
                f"{request.model}: expected a model that forecasts, so that the loss of accuracy can be measured; "
                f"family {base.name} does not"
            )
        bases = ModelPair(base, base, source, calibration_of(source.folder))
        with new_folder(folder) as target:

            def make(arguments: Mapping[str, Any]) -> Family:
                recipe = (
                    {"base_model": stored.reference}
                    | stated
                    | {key: arguments[key] and arguments[key].to_dict() for key in ("method", "calibration")}
                )
                name = f"{stored.name}@{options.label}"
                model = load_family(stored, request.device)
                save_compressed(
                    model, target, name=name, base_model=stored.name,
                    recipe={"recipe": recipe, **bases.calibration.facts},
                    heal=healer(model, **arguments, watch=with_rate(watch, "healing")), **arguments,
                )  # fmt: skip
                return load_family(replace(source, folder=target).running_in(options.precision), request.device)

            result = compress_and_judge(params, request, bases, readers, options, make, watch)
    return replace(result, license=license)


def compress_and_judge(
    params: Params,
    request: InspectRequest,
    bases: ModelPair,
    readers: Mapping[str, Reader],
    options: CompressOptions,
    make: Callable[[Mapping[str, Any]], Family],
    watch: Watch = lambda step, n_done, total: None,
) -> CompressResult:
    """Compress a model with the past of the series and judge it on their ends.

    Costs: parameters, attention_parameters, bytes of the weights in memory and in files and, of families that
    forecast, seconds of a forecast, and wql and mase of the windows of the certificate, as geometric means over the
    data sets. mase is missing if it is defined for no data set.

    bases: the base model twice, with the series that calibrated it. readers: name of the data -> function that reads
    them, called once. make: takes the keyword arguments method, tables and calibration of `compress_model` and
    returns the compressed model.
    Raises ParamsError for a share that no rank can meet; DataError if no series can be read, calibrate or be judged;
    and the errors of `certify_pair`.
    """
    from tsfmscope.compression.calibration_windows import calibration_series
    from tsfmscope.compression.compress import memory_bytes, sizes
    from tsfmscope.compression.export import file_bytes
    from tsfmscope.models.base import Forecaster

    base, series = bases.base, read_all(readers, watch)
    cases = {
        name: build_task_case(params, request, bases, data)
        for name, data in series.items()
        if not isinstance(data, DataError)
    }
    forecasts = isinstance(base, Forecaster)
    if options.budget_seconds is not None and not forecasts:
        raise ParamsError(f"--budget-seconds: expected a model that forecasts; family {base.name} does not")
    if forecasts:
        check_models(params, bases)
        _check_judgeable(list(cases.values()))
    arguments, counts = _calibrate(base, cases, options)
    before: dict[str, float] = {**sizes(base), "bytes": memory_bytes(base), "file_bytes": file_bytes(base)}
    watch("compressing", 0, 0)
    try:
        small = make(arguments)
    # Raised for ranks that are not possible.
    except ValueError as error:
        budget = "--to" if options.budget_seconds is None else "--budget-seconds"
        raise ParamsError(f"{budget} {options.share:g} --method {options.method}: {error}") from None
    after: dict[str, float] = {**sizes(small), "bytes": memory_bytes(small), "file_bytes": file_bytes(small)}
    if not forecasts:
        return CompressResult(_costs(before, after), counts)
    seconds = _compare_seconds(base, small, arguments, next(iter(cases.values())), options)
    before["seconds"], after["seconds"] = seconds.base, seconds.small
    certify_options = CertifyOptions(() if request.horizon is None else (request.horizon,), keeps_calibrated=True)
    stored_readers = {name: partial(_recall, data) for name, data in series.items()}
    calibration = bases.calibration.with_series(calibration_series(arguments["tables"], arguments["calibration"]))
    pair = ModelPair(base, small, bases.source, calibration)
    judged = certify_pair(params, request, pair, stored_readers, certify_options, watch)
    for name in ("wql", "mase"):
        pairs = [(row[f"{name}_base"], row[f"{name}_small"]) for row in judged.tasks]
        # A data set that one of both forecasts without an error has no ratio.
        if defined := [pair for pair in pairs if all(pair)]:
            before[name], after[name] = (geometric_mean(values) for values in zip(*defined, strict=True))
    costs = _costs(before, after, seconds)
    return CompressResult(costs, counts, judged, note=options.describe_excess(seconds.ratio))


def read_all(readers: Mapping[str, Reader], watch: Watch) -> dict[str, NamedSeries | DataError]:
    """Return the series of every data set, or the error that reading it raised; the error itself if all fail."""
    series: dict[str, NamedSeries | DataError] = {}
    for n_done, (name, read) in enumerate(readers.items()):
        watch(f"reading {name}", n_done, len(readers))
        try:
            series[name] = read()
        except DataError as error:
            series[name] = error
    errors = [error for error in series.values() if isinstance(error, DataError)]
    if len(errors) == len(series) and errors:
        raise errors[0]
    return series


def _recall(data: NamedSeries | DataError) -> NamedSeries:
    if isinstance(data, DataError):
        raise data
    return data


def _check_judgeable(cases: Sequence[LoadedCase]) -> None:
    """Raise DataError, with the reasons, if no series of any data set has a window in its held-out part."""
    from tsfmscope.series.windows import last_windows

    reasons: list[str] = []
    for case in cases:
        windows, skipped = last_windows(
            case.series.series, context=case.context, horizon=case.horizon, min_context=case.min_context,
            held_out=HELD_OUT,
        )  # fmt: skip
        if len(windows):
            return
        reasons.append(f"{case.dataset}: no series can be judged on its last {HELD_OUT:.0%}")
        reasons[-1] += f": {describe_reasons(count_reasons(skipped))}"
    raise DataError(f"{reasons[0]}; shorten --horizon, or give longer series")


def _calibrate(
    model: Family, cases: Mapping[str, LoadedCase], options: CompressOptions
) -> tuple[dict[str, Any], dict[str, int]]:
    """Return the arguments of `compress_model`, and the number of calibration windows by data set.

    Raises DataError if a method that reads data has no window.
    """
    from tsfmscope.compression.calibration_windows import calibration_windows
    from tsfmscope.series.tables import series_table

    if options.calibrate_on == "synthetic" and model.modality != "series":
        raise ParamsError(f"--calibrate-on synthetic: family {model.name} reads {model.modality}; use data")
    first = next(iter(cases.values()))
    tables = {name: series_table(case.series.series) for name, case in cases.items()}
    calibration = Calibration(
        datasets=() if options.calibrate_on == "synthetic" else tuple(tables),
        windows=options.windows,
        context=first.context,
        horizon=min(case.horizon for case in cases.values()),
        held_out=HELD_OUT,
        seed=first.seed,
        synthetic=0 if options.calibrate_on == "data" or model.modality != "series" else SYNTHETIC,
    )
    counts: dict[str, int] = {}
    if options.method in CALIBRATED or options.heal:
        for windows in calibration_windows(model, tables, calibration):
            counts[windows.dataset] = counts.get(windows.dataset, 0) + len(windows)
    arguments = {"method": options.method_block(), "tables": tables, "calibration": calibration if counts else None}
    return arguments, counts


def _timed_windows(case: LoadedCase) -> Windows:
    """Return the windows whose forecast is timed."""
    from tsfmscope.compression.compress import TIMED
    from tsfmscope.series.windows import spread_windows

    return spread_windows(
        case.series.series, context=case.context, horizon=case.horizon, count=TIMED, min_context=case.min_context
    )[0]


def _compare_seconds(
    base: Family, small: Family, arguments: Mapping[str, Any], case: LoadedCase, options: CompressOptions
) -> PairedSeconds:
    """Return the seconds of a forecast of both models; with a budget in seconds, of the windows of its search."""
    from tsfmscope.compression.calibration_data import CalibrationData
    from tsfmscope.compression.timing import PAIRS, compare_seconds, forecast_seconds
    from tsfmscope.compression.whole_model import TIMED

    if options.budget_seconds is None:
        return compare_seconds(forecast_seconds(_timed_windows(case)), base, small)
    windows = CalibrationData(base, arguments["tables"], arguments["calibration"]).timed_windows(TIMED)
    return compare_seconds(forecast_seconds(windows), base, small, rounds=3 * PAIRS)


def _costs(
    before: Mapping[str, float], after: Mapping[str, float], seconds: PairedSeconds | None = None
) -> list[dict[str, Any]]:
    """Return one row per quantity. The ratio of seconds is that of the pairs, and has an interval."""
    rows: list[dict[str, Any]] = [
        {"quantity": name, "before": value, "after": after[name], "ratio": after[name] / value if value else None}
        for name, value in before.items()
        if name in after
    ]
    for row in rows:
        timed = seconds if row["quantity"] == "seconds" else None
        row |= {"ratio": timed.ratio} if timed else {}
        row |= {"ratio_low": timed.low if timed else None, "ratio_high": timed.high if timed else None}
    return rows

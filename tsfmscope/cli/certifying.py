"""Test of a small model against its base, for `tsfmscope certify`.

A task is one data set at one horizon. Both models forecast the same windows with the same seeds: the last one of every
series, and for a certificate of one table earlier ones too. The unit of the test is a source of data or, for one table,
a series or a group of series.
"""

from __future__ import annotations

import logging
import math
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from stages.config import Forecasts
from stages.config.params import Params, ParamsError
from stages.planning.model_reference import Source, load_family, resolve
from stages.planning.named_sets import NamedSeries, find_data_set
from tsfmscope.cli.inspection import (
    InspectRequest,
    LoadedCase,
    Watch,
    build_case,
    count_left_out,
    device_context,
    floor_notes,
    load_series,
    reading_notes,
    resolve_data,
)
from tsfmscope.cli.provenance import NO_CALIBRATION, Calibration, calibration_of
from tsfmscope.compression.onnx_forecaster import DESCRIPTION, OnnxForecaster
from tsfmscope.defaults import HELD_OUT
from tsfmscope.errors import DataError
from tsfmscope.series.catalog import modality
from tsfmscope.series.content import digests, name_sources
from tsfmscope.series.types import describe_reasons
from tsfmscope.statistics.noninferiority import (
    MARGIN,
    WORST,
    Certificate,
    CoverageChange,
    Losses,
    assess,
    check_ratio,
    log_ratio,
    pool,
    split_table,
    to_ratio,
)

if TYPE_CHECKING:
    from tsfmscope.lens import ScoredWindows
    from tsfmscope.models.base import Family

logger = logging.getLogger(__name__)

# Ends of the interval whose coverage is compared.
LOW, HIGH = 0.1, 0.9
# Largest number of windows per series for a certificate of one table, each a horizon before the next one.
ORIGINS = 5
CALIBRATED = "it calibrated or healed the small model"


@dataclass(frozen=True)
class CertifyOptions:
    """Options of the test.

    horizons: in steps; empty: that of each data set. margin, worst: as in `assess`. keeps_calibrated: whether sources
    that calibrated the small model are tested too; a single table is in any case.
    """

    horizons: Sequence[int] = ()
    margin: float = MARGIN
    worst: float = WORST
    keeps_calibrated: bool = False

    def __post_init__(self) -> None:
        """Raise ValueError for a margin that is no ratio above 1, or a horizon below 1."""
        check_ratio("margin", self.margin)
        check_ratio("worst", self.worst)
        if any(horizon < 1 for horizon in self.horizons):
            raise ValueError(f"horizon: got {min(self.horizons)}, expected at least 1")


class ModelPair(NamedTuple):
    """Loaded base and small model. source: checkpoint of the base. calibration: series that the small one has seen."""

    base: Family
    small: Family | OnnxForecaster
    source: Source
    calibration: Calibration = NO_CALIBRATION


class ScoredTask(NamedTuple):
    """Row of one task, and the losses of both models by series."""

    row: dict[str, Any]
    losses: dict[str, Losses]


@dataclass(frozen=True)
class CertifyResult:
    """Result of the test.

    tasks: one row per task: data, dataset, source, horizon, context, n_series, season (of mase), n_values (observed
    targets), wql_base, wql_small, ratio, mase_base, mase_small (None where it is undefined), coverage_base,
    coverage_small, skipped (reason -> number of series). left_out: data, horizon and reason of what was not tested.
    table: name of the data, if the certificate is for one table; None: general. units: unit and ratio (the mean over
    horizons). parts: name, horizon and ratio of the tasks, or of the groups of units of a table. calibrated: names of
    the tested data that calibrated or healed the small model.
    """

    tasks: list[dict[str, Any]]
    left_out: list[dict[str, Any]]
    certificate: Certificate
    table: str | None
    units: list[dict[str, Any]]
    parts: list[dict[str, Any]]
    calibrated: list[str]

    @property
    def skipped(self) -> dict[str, int]:
        """Reason -> number of series that were left out of the scored tasks."""
        return dict(sum((Counter(row["skipped"]) for row in self.tasks), Counter()))


def certify_models(
    params: Params,
    request: InspectRequest,
    small: str,
    data: Sequence[str],
    options: CertifyOptions,
    watch: Watch,
) -> CertifyResult:
    """Load both models and test the small one against the base on every task.

    request: the model is the base; its data and horizon are replaced by those of each task. small: a model, or a
    folder that `export --onnx` wrote. data: names of data sets, files and folders; every file of a folder is a data
    set. Raises ParamsError for a name or value that is not valid, and the errors of `certify_pair`.
    """
    readers = open_data(params, request, data)
    base = resolve(params, request.model, request.family)
    is_onnx = Path(small, DESCRIPTION).is_file()
    other = base if is_onnx else resolve(params, small, request.family)
    if not is_onnx and base.folder.resolve() == other.folder.resolve() and base.options == other.options:
        raise ParamsError(f"{small}: expected another model than the base, got the same checkpoint, {base.folder}")
    with device_context(request.device):
        watch("loading the models", 0, 0)
        loaded = OnnxForecaster.load(Path(small)) if is_onnx else load_family(other, request.device)
        calibration = calibration_of(Path(small) if is_onnx else other.folder)
        pair = ModelPair(load_family(base, request.device), loaded, base, calibration)
    return certify_pair(params, request, pair, readers, options, watch)


def certify_pair(
    params: Params,
    request: InspectRequest,
    pair: ModelPair,
    readers: Mapping[str, Callable[[], NamedSeries]],
    options: CertifyOptions,
    watch: Watch = lambda step, n_done, total: None,
) -> CertifyResult:
    """Score both models on every task and test the small one.

    readers: name of the data -> function that reads them, called once. Data that cannot be used are left out
    with their reason. Raises ParamsError for models that do not forecast or read other data, or if no task is
    left; HealthError if a forecast is not finite.
    """
    check_models(params, pair)
    horizons: list[int | None] = [*dict.fromkeys(options.horizons)] or [None]
    seed = params.seed if request.seed is None else request.seed
    table = next(iter(readers)) if len(readers) == 1 else None
    keeps_calibrated = options.keeps_calibrated or table is not None
    scored: list[ScoredTask] = []
    left_out: list[dict[str, Any]] = []
    contents: dict[str, frozenset[str]] = {}
    calibrated: list[str] = []
    notes: dict[str, None] = {}
    for n_done, (name, read) in enumerate(readers.items()):
        watch(f"forecasting {name}", n_done, len(readers))
        try:
            series = read()
        except DataError as error:
            left_out.append({"data": name, "horizon": None, "reason": str(error)})
            continue
        contents[name] = digests(series.loaded.usable)
        if pair.calibration.contains(contents[name], name, series.name):
            if not keeps_calibrated:
                left_out.append({"data": name, "horizon": None, "reason": CALIBRATED})
                continue
            calibrated.append(name)
        for horizon in horizons:
            try:
                case = build_task_case(params, replace(request, horizon=horizon), pair, series)
                task = _score_task(params, case, pair, ORIGINS if table else 1)
                notes |= dict.fromkeys(_reading_notes(case, pair, params.forecasts))
            except DataError as error:
                left_out.append({"data": name, "horizon": horizon, "reason": str(error)})
            else:
                scored.append(task._replace(row={"data": name} | task.row))
    if not scored:
        first = f"{left_out[0]['data']}: {left_out[0]['reason']}" if left_out else "no data"
        raise ParamsError(
            f"--data: expected at least one task, {len(left_out)} were left out: {first}; name other data or a shorter "
            "--horizon"
        )
    for note in notes:
        logger.warning(note)
    source_of = name_sources(contents)
    tasks = [{**task.row, "source": source_of[task.row["data"]]} for task in scored]
    units, parts = _general_units(tasks) if table is None else _table_units(scored, seed)
    certificate = assess(
        [unit["log_ratio"] for unit in units],
        [part["log_ratio"] for part in parts],
        [CoverageChange(row["coverage_small"] - row["coverage_base"], row["n_values"]) for row in tasks],
        margin=options.margin,
        worst=options.worst,
        seed=seed,
    )
    for row in (*units, *parts):
        row["ratio"] = to_ratio(row.pop("log_ratio"))
    return CertifyResult(tasks, left_out, certificate, table, units, parts, calibrated)


def _general_units(tasks: Sequence[Mapping[str, Any]]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the mean log ratio of the tasks of each source, and the log ratio of each task."""
    parts = [
        {"name": row["dataset"], "horizon": row["horizon"], "log_ratio": log_ratio((row["wql_base"], row["wql_small"]))}
        for row in tasks
    ]
    by_source: dict[str, list[float]] = {}
    for row, part in zip(tasks, parts, strict=True):
        by_source.setdefault(row["source"], []).append(part["log_ratio"])
    return [_mean_unit(source, ratios) for source, ratios in by_source.items()], parts


def _table_units(scored: Sequence[ScoredTask], seed: int) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the mean log ratio of each unit of a table, and the log ratio of each group.

    Series whose small model has no loss at all are left out, since their log ratio is minus infinity.
    """
    unit_of, group_of = split_table(sorted({name for task in scored for name in task.losses}), seed)
    by_unit: dict[str, list[float]] = {}
    parts = []
    for task in scored:
        units = pool(task.losses, unit_of)
        for unit, losses in units.items():
            if (ratio := log_ratio(losses)) > -math.inf:
                by_unit.setdefault(unit, []).append(ratio)
        for group, losses in sorted(pool(units, group_of).items()):
            if (ratio := log_ratio(losses)) > -math.inf:
                parts.append({"name": group, "horizon": task.row["horizon"], "log_ratio": ratio})
    return [_mean_unit(unit, ratios) for unit, ratios in by_unit.items()], parts


def _mean_unit(name: str, ratios: Sequence[float]) -> dict[str, Any]:
    return {"unit": name, "log_ratio": math.fsum(ratios) / len(ratios)}


def open_data(params: Params, request: InspectRequest, names: Sequence[str]) -> dict[str, Callable[[], NamedSeries]]:
    """Return a function that reads each of `list_data`, by its name. ParamsError for a name that is not valid."""
    readers: dict[str, Callable[[], NamedSeries]] = {}
    for text in list_data(params, names):
        resolved = resolve_data(params, text, request.columns)
        readers[text] = partial(load_series, params, replace(request, data=text), *resolved)
    return readers


def list_data(params: Params, names: Sequence[str]) -> list[str]:
    """Return the named data sets and files, and the files of named folders, each once."""
    from tsfmscope.series.files.user_files import list_files

    found: dict[str | Path, str] = {}
    for text in names:
        path = Path(os.path.expanduser(text))
        if find_data_set(text, params) is not None:
            found.setdefault(text, text)
            continue
        for file in list_files(path) if path.is_dir() else [path]:
            found.setdefault(file.resolve(), str(file))
    return list(found.values())


def check_models(params: Params, pair: ModelPair) -> None:
    """Raise ParamsError for models that cannot be compared."""
    from tsfmscope.models.base import Forecaster

    for model in (pair.base, pair.small):
        if not isinstance(model, Forecaster | OnnxForecaster):
            raise ParamsError(f"expected models that forecast; family {model.name} does not")
    if pair.base.modality != pair.small.modality:
        raise ParamsError(
            f"expected models that read the same data; family {pair.base.name} reads {pair.base.modality}, "
            f"family {pair.small.name} {pair.small.modality}"
        )
    if missing := {LOW, HIGH} - set(params.forecasts.levels):
        raise ParamsError(f"forecasts.levels: {min(missing)} is missing; add it, since coverage needs {LOW} and {HIGH}")


def build_task_case(params: Params, request: InspectRequest, pair: ModelPair, data: NamedSeries) -> LoadedCase:
    """Return the case of the base model and a data set; ParamsError for data that models do not read."""
    kind = modality(data.dataset.source)
    if kind != pair.base.modality:
        raise ParamsError(f"{data.name}: {kind} data, but the models read {pair.base.modality}; name other data")
    return build_case(params, request, pair.base, pair.source, data)


def _reading_notes(case: LoadedCase, pair: ModelPair, options: Forecasts) -> Iterator[str]:
    """Yield what a user should know about the contexts that the models read of one task."""
    from tsfmscope.series.windows import last_windows

    windows, _ = last_windows(
        case.series.series, context=case.context, horizon=case.horizon, min_context=options.min_context,
        held_out=HELD_OUT,
    )  # fmt: skip
    for model in (pair.base, pair.small):
        if isinstance(model, OnnxForecaster):
            yield from reading_notes(f"{model.name} in ONNX", model.context, case.context)
        else:
            yield from reading_notes(model.name, model.max_context, case.context)
            near = model.count_near_floor(windows.context)
            yield from floor_notes(model, model.name, case.dataset, near, len(windows))


def _score_task(params: Params, case: LoadedCase, pair: ModelPair, origins: int) -> ScoredTask:
    """Return the row of one task and the losses by series, pooled over origins.

    origins: largest number of windows per series. Raises DataError with the reason if it has no ratio of two WQL.
    """
    levels = params.forecasts.levels
    of_base, of_small = (forecast_windows(case, model, params.forecasts, origins) for model in (pair.base, pair.small))
    assert of_base.rows.keys() == of_small.rows.keys()
    usable = {row["series"] for row in of_base.rows.values() if row["n_future"]}
    reasons = {row["series"]: row["reason"] for row in of_base.rows.values()}
    reasons |= {skip.series: skip.reason for skip in of_base.skipped}
    left_out = count_left_out(case.series, Counter(reason for name, reason in reasons.items() if name not in usable))
    if not usable:
        raise DataError(f"no series has a window at horizon {case.horizon}: {describe_reasons(left_out)}")
    base, small = (scored.accuracy(len(levels)) for scored in (of_base, of_small))
    if "wql" not in base or "wql" not in small:
        raise DataError("WQL is undefined: all targets are 0")
    ratio = log_ratio((base["wql"], small["wql"]))
    if ratio == -math.inf:
        raise DataError(f"the ratio of WQL is undefined: base {base['wql']:g}, small model 0")
    of_windows = {
        window: (row["quantile_loss"], of_small.rows[window]["quantile_loss"])
        for window, row in of_base.rows.items()
        if row["series"] in usable
    }
    coverage_base, n_values = _coverage(case, of_base, levels)
    row = {
        "dataset": case.dataset,
        "horizon": case.horizon,
        "context": case.context,
        "n_series": len(usable),
        "season": max(row["season"] for row in of_base.rows.values()),
        "n_values": n_values,
        "wql_base": base["wql"],
        "wql_small": small["wql"],
        "ratio": to_ratio(ratio),
        "mase_base": base.get("mase"),
        "mase_small": small.get("mase"),
        "coverage_base": coverage_base,
        "coverage_small": _coverage(case, of_small, levels)[0],
        "skipped": left_out,
    }
    return ScoredTask(row, pool(of_windows, {window: row["series"] for window, row in of_base.rows.items()}))


def forecast_windows(
    case: LoadedCase, model: Family | OnnxForecaster, options: Forecasts, origins: int = 1
) -> ScoredWindows:
    """Forecast and score the last windows of every series, with any model that forecasts data of the case's modality.

    origins: largest number of windows per series, each a horizon before the next one, inside the held-out part.
    The rows have the keys "SERIES, ORIGIN", and the column `series`. skipped: series without a last window.
    """
    from tsfmscope.lens import ScoredWindows, score_forecasts, window_seed
    from tsfmscope.models.base import Forecaster

    assert isinstance(model, Forecaster | OnnxForecaster)
    pooled = ScoredWindows({}, [])
    for number in range(origins):
        scored = score_forecasts(
            model,
            case.series.series,
            context=case.context,
            horizon=case.horizon,
            levels=options.levels,
            samples=options.samples,
            seed_of=lambda series: window_seed(str(case.seed), series),
            seed=case.seed,
            min_context=options.min_context,
            held_out=HELD_OUT,
            noise=case.noise,
            earlier=number * case.horizon,
            batch=options.batch,
            keep_quantiles=True,
        )
        pooled.rows.update({f"{name}, {row['origin']}": {"series": name} | row for name, row in scored.rows.items()})
        if not number:
            pooled.skipped.extend(scored.skipped)
        if not scored.rows:
            break
    return pooled


def _coverage(case: LoadedCase, scored: ScoredWindows, levels: Sequence[float]) -> tuple[float, int]:
    """Return the share of observed targets inside the 80 % interval, and the number of observed targets."""
    import numpy as np

    from tsfmscope.forecasting.coverage import count_covered

    values = {series.series: series.values for series in case.series.series}
    n_inside = n_values = 0
    for row in scored.rows.values():
        quantiles = np.asarray(row["quantiles"])
        target = values[row["series"]][row["origin"] : row["origin"] + case.horizon]
        inside, observed = count_covered(target, quantiles[levels.index(LOW)], quantiles[levels.index(HIGH)])
        n_inside, n_values = n_inside + inside, n_values + observed
    return n_inside / n_values, n_values

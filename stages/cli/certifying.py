"""Test of a small model against its base on many tasks, for `tsfmscope certify`.

A task is one data set at one horizon. Both models forecast the same windows, the last one of every series, with
the same seeds.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from tsfmscope.stages.cli.inspection import (
    InspectRequest,
    LoadedCase,
    Watch,
    build_case,
    count_left_out,
    device_context,
    load_series,
    resolve_data,
)
from tsfmscope.stages.config import Forecasts
from tsfmscope.stages.config.params import Params, ParamsError
from tsfmscope.stages.pipeline.model_reference import Source, load_family, resolve
from tsfmscope.stages.pipeline.named_sets import NamedSeries, find_data_set
from tsfmscope.tasks.compression.onnx_forecaster import DESCRIPTION, OnnxForecaster
from tsfmscope.tasks.defaults import HELD_OUT
from tsfmscope.tasks.errors import DataError
from tsfmscope.tasks.series.catalog import modality
from tsfmscope.tasks.series.types import describe_reasons
from tsfmscope.tasks.statistics.noninferiority import MARGIN, WORST, Certificate, assess, check_ratio

if TYPE_CHECKING:
    from tsfmscope.tasks.lens import ScoredWindows
    from tsfmscope.tasks.models.base import Family

# Ends of the interval whose coverage is compared.
LOW, HIGH = 0.1, 0.9


@dataclass(frozen=True)
class CertifyOptions:
    """Options of the test. horizons: in steps; empty: that of each data set. margin, worst: as in `assess`."""

    horizons: Sequence[int] = ()
    margin: float = MARGIN
    worst: float = WORST

    def __post_init__(self) -> None:
        """Raise ValueError for a margin that is no ratio above 1, or a horizon below 1."""
        check_ratio("margin", self.margin)
        check_ratio("worst", self.worst)
        if any(horizon < 1 for horizon in self.horizons):
            raise ValueError(f"horizon: got {min(self.horizons)}, expected at least 1")


class ModelPair(NamedTuple):
    """Loaded base and small model. source: checkpoint of the base."""

    base: Family
    small: Family | OnnxForecaster
    source: Source


@dataclass(frozen=True)
class CertifyResult:
    """Result of the test.

    tasks: one row per task: data, dataset, horizon, context, n_series, season (of mase), wql_base, wql_small, ratio,
    mase_base, mase_small (None where it is undefined), coverage_base, coverage_small, skipped (reason ->
    number of series).
    left_out: data, horizon and reason of the tasks that could not be scored.
    """

    tasks: list[dict[str, Any]]
    left_out: list[dict[str, Any]]
    certificate: Certificate

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
        pair = ModelPair(load_family(base, request.device), loaded, base)
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
    tasks: list[dict[str, Any]] = []
    left_out: list[dict[str, Any]] = []
    for n_done, (name, read) in enumerate(readers.items()):
        watch(f"forecasting {name}", n_done, len(readers))
        try:
            series = read()
        except DataError as error:
            left_out.append({"data": name, "horizon": None, "reason": str(error)})
            continue
        for horizon in horizons:
            try:
                tasks.append({"data": name} | _score_task(params, replace(request, horizon=horizon), pair, series))
            except DataError as error:
                left_out.append({"data": name, "horizon": horizon, "reason": str(error)})
    if not tasks:
        first = f"{left_out[0]['data']}: {left_out[0]['reason']}" if left_out else "no data"
        raise ParamsError(
            f"--data: expected at least one task, {len(left_out)} were left out: {first}; name other data or a shorter "
            "--horizon"
        )
    certificate = assess(
        [math.log(row["ratio"]) for row in tasks],
        [row["coverage_small"] - row["coverage_base"] for row in tasks],
        margin=options.margin,
        worst=options.worst,
        seed=params.seed if request.seed is None else request.seed,
    )
    return CertifyResult(tasks, left_out, certificate)


def open_data(params: Params, request: InspectRequest, names: Sequence[str]) -> dict[str, Callable[[], NamedSeries]]:
    """Return a function that reads each of `list_data`, by its name. ParamsError for a name that is not valid."""
    readers: dict[str, Callable[[], NamedSeries]] = {}
    for text in list_data(params, names):
        one_request = replace(request, data=text)
        readers[text] = partial(load_series, params, one_request, *resolve_data(params, one_request))
    return readers


def list_data(params: Params, names: Sequence[str]) -> list[str]:
    """Return the named data sets and files, and the files of named folders, each once."""
    from tsfmscope.tasks.series.files.user_files import list_files

    found: dict[str | Path, str] = {}
    for text in names:
        path = Path(text).expanduser()
        if find_data_set(text, params) is not None:
            found.setdefault(text, text)
            continue
        for file in list_files(path) if path.is_dir() else [path]:
            found.setdefault(file.resolve(), str(file))
    return list(found.values())


def check_models(params: Params, pair: ModelPair) -> None:
    """Raise ParamsError for models that cannot be compared."""
    from tsfmscope.tasks.models.base import Forecaster

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


def _score_task(params: Params, request: InspectRequest, pair: ModelPair, data: NamedSeries) -> dict[str, Any]:
    """Return the row of one task. Raises DataError with the reason if it has no ratio of two WQL."""
    kind = modality(data.dataset.source)
    if kind != pair.base.modality:
        raise ParamsError(f"{data.name}: {kind} data, but the models read {pair.base.modality}; name other data")
    case = build_case(params, request, pair.base, pair.source, data)
    levels = params.forecasts.levels
    base, small = (forecast_last_windows(case, model, params.forecasts) for model in (pair.base, pair.small))
    assert {name: row["origin"] for name, row in base.rows.items()} == {
        name: row["origin"] for name, row in small.rows.items()
    }
    without_target = Counter(row["reason"] for row in base.rows.values() if not row["n_future"])
    skipped = count_left_out(case.series, Counter(skip.reason for skip in base.skipped) + without_target)
    n_series = len(base.rows) - without_target.total()
    of_base, of_small = (scored.accuracy(len(levels)) for scored in (base, small))
    wql_base, wql_small = of_base.get("wql"), of_small.get("wql")
    if not n_series:
        raise DataError(f"no series has a window at horizon {case.horizon}: {describe_reasons(skipped)}")
    if wql_base is None or wql_small is None:
        raise DataError("WQL is undefined: all targets are 0")
    ratio = wql_small / wql_base if wql_base else math.inf
    if not 0 < ratio < math.inf:
        raise DataError(f"the ratio of WQL is undefined: base {wql_base:g}, small model {wql_small:g}")
    return {
        "dataset": case.dataset,
        "horizon": case.horizon,
        "context": case.context,
        "n_series": n_series,
        "season": max(row["season"] for row in base.rows.values()),
        "wql_base": wql_base,
        "wql_small": wql_small,
        "ratio": ratio,
        "mase_base": of_base.get("mase"),
        "mase_small": of_small.get("mase"),
        "coverage_base": _coverage(case, base, levels),
        "coverage_small": _coverage(case, small, levels),
        "skipped": skipped,
    }


def forecast_last_windows(case: LoadedCase, model: Family | OnnxForecaster, options: Forecasts) -> ScoredWindows:
    """Forecast and score the last window of every series, with any model that forecasts data of the case's modality."""
    from tsfmscope.tasks.lens import score_forecasts, window_seed
    from tsfmscope.tasks.models.base import Forecaster

    assert isinstance(model, Forecaster | OnnxForecaster)
    return score_forecasts(
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
        batch=options.batch,
        keep_quantiles=True,
    )


def _coverage(case: LoadedCase, scored: ScoredWindows, levels: Sequence[float]) -> float:
    """Return the share of the observed targets of a task inside the 80 % interval."""
    import numpy as np

    from tsfmscope.tasks.forecasting.coverage import count_covered

    counts = np.zeros(2)
    for series in case.series.series:
        if (row := scored.rows.get(series.series)) is not None:
            quantiles = np.asarray(row["quantiles"])
            target = series.values[row["origin"] : row["origin"] + case.horizon]
            counts += count_covered(target, quantiles[levels.index(LOW)], quantiles[levels.index(HIGH)])
    return float(counts[0] / counts[1])

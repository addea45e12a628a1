"""Compression of a model's attention on a user's series, for `tsfmscope compress`.

The past of each series calibrates the compression; the end of each series measures what it costs.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tsfmscope.stages import compression
from tsfmscope.stages.cli.inspection import (
    InspectRequest,
    LoadedCase,
    Watch,
    count_left_out,
    device_context,
    load_case,
    load_model,
)
from tsfmscope.stages.config import Forecasts
from tsfmscope.stages.config.compression import Method
from tsfmscope.stages.config.params import Params, ParamsError
from tsfmscope.stages.pipeline.targets import check_new
from tsfmscope.tasks.defaults import HELD_OUT
from tsfmscope.tasks.entries.compression import CalibrationSpec, CompressSpec, MethodSpec
from tsfmscope.tasks.entries.parts import ModelSource
from tsfmscope.tasks.errors import DataError
from tsfmscope.tasks.job import Job, current_context

if TYPE_CHECKING:
    import pyarrow as pa

    from tsfmscope.tasks.lens import ScoredWindows
    from tsfmscope.tasks.models.base import Family
    from tsfmscope.tasks.series.types import Windows

# Number of timed forecasts; the fastest is reported, because other work on the machine can only add time.
ROUNDS = 3
# Number of windows of a timed forecast.
N_TIMED_WINDOWS = 4


@dataclass(frozen=True)
class CompressOptions:
    """Options of the compression.

    to: share of the attention parameters that is kept. method: a method of docs/compression.md. windows:
    number of calibration windows. precision: precision in which the compressed model runs; None: as the model
    itself.
    """

    to: float
    method: str = "activation-aware-2step"
    windows: int = 32
    precision: str | None = None


@dataclass(frozen=True)
class CompressResult:
    """Result of the compression.

    rows: one per quantity, with its values before and after. n_series: number of series that were scored.
    skipped: reason -> number of the other series.
    """

    rows: list[dict[str, Any]]
    n_series: int
    skipped: Mapping[str, int]


def compress_attention(
    params: Params, request: InspectRequest, options: CompressOptions, folder: Path, watch: Watch
) -> CompressResult:
    """Save the compressed model to a new or empty folder and return what the compression costs.

    The values after compression are those of the model as loaded from the folder. Quantities: parameters,
    attention_parameters, bytes of the weights in memory, seconds of a forecast of N_TIMED_WINDOWS windows, and wql and
    mase of the last window of every series. mase is missing if it is defined for no series.
    Raises ParamsError for a folder that is not empty or a model that does not forecast; DataError if no
    series has a window before its last fifth, or none has one in it; and the errors of `inspect_layers`.
    """
    from tsfmscope.tasks.compression.calibration_windows import calibration_windows
    from tsfmscope.tasks.models.base import Forecaster
    from tsfmscope.tasks.series.tables import series_table

    check_new(folder)
    with device_context(request.device):
        case = load_case(params, request, watch)
        if not isinstance(case.model, Forecaster):
            raise ParamsError(
                f"{request.model}: expected a model that forecasts, so that the loss of accuracy can be measured; "
                f"family {case.model.name} does not"
            )
        table = series_table(case.series.series)
        # Windows of the past, for timing forecasts.
        calibration = _calibration(case, N_TIMED_WINDOWS).to_dict()
        windows = calibration_windows(case.model, {case.dataset: table}, **calibration)[0]
        watch("forecasting before", 0, 0)
        scored = _forecast(case, case.model, params.forecasts)
        before = _quantities(case, case.model, scored, windows, len(params.forecasts.levels))
        watch("compressing", 0, 0)
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".compress-") as work:
            _compress(case, options, table, Path(work, "model"))
            # check_new has checked that the folder is empty.
            if folder.exists():
                folder.rmdir()
            Path(work, "model").rename(folder)
        watch("forecasting after", 0, 0)
        smaller = load_model(replace(case.source, folder=folder).running_in(options.precision), request.device)
        rescored = _forecast(case, smaller, params.forecasts)
        after = _quantities(case, smaller, rescored, windows, len(params.forecasts.levels))
    rows = [
        {"quantity": name, "before": value, "after": after[name], "ratio": after[name] / value if value else None}
        for name, value in before.items()
    ]
    without_target = Counter(str(row["reason"]) for row in scored.rows.values() if not row["n_future"])
    unscored = Counter(skip.reason for skip in scored.skipped) + without_target
    n_scored = len(scored.rows) - without_target.total()
    return CompressResult(rows, n_scored, count_left_out(case.series, unscored))


def _calibration(case: LoadedCase, windows: int) -> CalibrationSpec:
    return CalibrationSpec(
        datasets=(case.dataset,),
        windows=windows,
        context=case.context,
        horizon=case.horizon,
        held_out=HELD_OUT,
        seed=case.seed,
    )


def _compress(case: LoadedCase, options: CompressOptions, table: pa.Table, folder: Path) -> None:
    """Compress the model with the options of its stored weights, and save it.

    The loaded model is changed in place if it has these options; else the stored weights are loaded.
    """
    from tsfmscope.tasks.entries.compression import compress as work

    stored = case.source.with_stored_options()
    model = case.model if stored == case.source else load_model(stored, current_context().device)
    method = Method.model_validate({"method": options.method, "ranks": {"budget": options.to}})
    spec = CompressSpec(
        model=f"{stored.name}@{options.method}-{options.to:g}",
        base_model=stored.name,
        rank=options.to,
        source=ModelSource(family=stored.family, ref=stored.reference, options=dict(stored.options)),
        method=MethodSpec.parse(method.plain()),
        calibration=_calibration(case, options.windows),
    )
    try:
        work(Job(compression.COMPRESS, spec.to_dict()), {"folder": folder, "series": {case.dataset: table}}, model)
    # Raised for ranks that are not possible.
    except ValueError as error:
        raise ParamsError(f"--to {options.to:g} --method {options.method}: {error}") from None


def _forecast(case: LoadedCase, model: Family, options: Forecasts) -> ScoredWindows:
    """Forecast and score the last window of every series."""
    from tsfmscope.tasks.lens import score_forecasts, window_seed
    from tsfmscope.tasks.models.base import Forecaster

    assert isinstance(model, Forecaster)
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
    )


def _quantities(
    case: LoadedCase, model: Family, scored: ScoredWindows, windows: Windows, levels: int
) -> dict[str, float]:
    from tsfmscope.tasks.compression.compress import sizes
    from tsfmscope.tasks.compression.timing import forecast_seconds
    from tsfmscope.tasks.models.base import Forecaster

    assert isinstance(model, Forecaster)
    seconds = forecast_seconds(windows)
    # The first call is a warm-up and is not timed.
    seconds(model)
    return {
        **sizes(model),
        "bytes": sum(weight.numel() * weight.element_size() for weight in model.network.parameters()),
        "seconds": min(seconds(model) for _ in range(ROUNDS)),
        **_scores(scored, case.dataset, levels),
    }


def _scores(scored: ScoredWindows, dataset: str, levels: int) -> dict[str, float]:
    """Return the WQL pooled over the series' windows and, if any series has a MASE, the mean of the MASEs.

    Raises DataError if no series was scored or all targets are 0.
    """
    rows = list(scored.rows.values())
    target = sum(row["target_abs"] for row in rows)
    if not target:
        reasons = [*(skip.reason for skip in scored.skipped), *(row["reason"] for row in rows if row["reason"])]
        reason = reasons[0] if reasons else "all targets are 0"
        raise DataError(f"{dataset}: no series can be judged on its last {HELD_OUT:.0%}: {reason}; shorten --horizon")
    mase = [row["mase"] for row in rows if row["mase"] is not None]
    wql = {"wql": sum(row["quantile_loss"] for row in rows) / (levels * target)}
    return wql | ({"mase": sum(mase) / len(mase)} if mase else {})

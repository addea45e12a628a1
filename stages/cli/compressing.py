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

from tsfmscope.stages.cli.inspection import (
    InspectRequest,
    LoadedCase,
    Watch,
    count_left_out,
    device_context,
    load_case,
)
from tsfmscope.stages.cli.progress import with_rate
from tsfmscope.stages.config import Forecasts
from tsfmscope.stages.config.compression import Method
from tsfmscope.stages.config.params import Params, ParamsError
from tsfmscope.stages.pipeline.model_reference import load_family
from tsfmscope.stages.pipeline.targets import check_new
from tsfmscope.tasks.defaults import HELD_OUT
from tsfmscope.tasks.errors import DataError

if TYPE_CHECKING:
    import pyarrow as pa

    from tsfmscope.tasks.lens import ScoredWindows
    from tsfmscope.tasks.models.base import Family
    from tsfmscope.tasks.series.types import Windows

# Number of timed forecasts; the fastest is reported, because other work on the machine can only add time.
ROUNDS = 3


@dataclass(frozen=True)
class CompressOptions:
    """Options of the compression.

    to: share of the attention parameters that is kept. method: a method of docs/compression.md. windows:
    number of calibration windows. precision: precision in which the compressed model runs; None: as the model
    itself. heal: number of steps of healing.
    """

    to: float
    method: str = "activation-aware-2step"
    windows: int = 32
    precision: str | None = None
    heal: int = 0


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
    from tsfmscope.tasks.compression.compress import TIMED
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
        windows = calibration_windows(case.model, {case.dataset: table}, **_calibration(case, TIMED))[0]
        watch("forecasting before", 0, 0)
        scored = forecast_last_windows(case, case.model, params.forecasts)
        before = _quantities(case, case.model, scored, windows, len(params.forecasts.levels))
        watch("compressing", 0, 0)
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".compress-") as work:
            _compress(case, options, table, Path(work, "model"), watch)
            # check_new has checked that the folder is empty.
            if folder.exists():
                folder.rmdir()
            Path(work, "model").rename(folder)
        watch("forecasting after", 0, 0)
        smaller = load_family(replace(case.source, folder=folder).running_in(options.precision), request.device)
        rescored = forecast_last_windows(case, smaller, params.forecasts)
        after = _quantities(case, smaller, rescored, windows, len(params.forecasts.levels))
    rows = [
        {"quantity": name, "before": value, "after": after[name], "ratio": after[name] / value if value else None}
        for name, value in before.items()
    ]
    without_target = Counter(str(row["reason"]) for row in scored.rows.values() if not row["n_future"])
    unscored = Counter(skip.reason for skip in scored.skipped) + without_target
    n_scored = len(scored.rows) - without_target.total()
    return CompressResult(rows, n_scored, count_left_out(case.series, unscored))


def _calibration(case: LoadedCase, windows: int) -> dict[str, Any]:
    """Return the options of `calibration_windows`."""
    return {
        "datasets": [case.dataset],
        "windows": windows,
        "context": case.context,
        "horizon": case.horizon,
        "held_out": HELD_OUT,
        "seed": case.seed,
    }


def _compress(case: LoadedCase, options: CompressOptions, table: pa.Table, folder: Path, watch: Watch) -> None:
    """Compress the model with the options of its stored weights, and save it.

    The loaded model is changed in place if it has these options; else the stored weights are loaded.
    """
    from tsfmscope.tasks.compression.compress import save_compressed
    from tsfmscope.tasks.training.healing import healer

    stored = case.source.with_stored_options()
    model = case.model if stored == case.source else load_family(stored, case.device)
    method = Method.model_validate(
        {"method": options.method, "ranks": {"budget": options.to}, "heal": options.heal}
    ).plain()
    calibration, tables = _calibration(case, options.windows), {case.dataset: table}
    try:
        save_compressed(
            model,
            folder,
            name=f"{stored.name}@{options.method}-{options.to:g}",
            base_model=stored.name,
            method=method,
            tables=tables,
            calibration=calibration,
            recipe={"recipe": {"base_model": stored.reference, "method": method, "calibration": calibration}},
            heal=healer(model, method, tables, calibration, with_rate(watch, "healing")),
        )
    # Raised for ranks that are not possible.
    except ValueError as error:
        raise ParamsError(f"--to {options.to:g} --method {options.method}: {error}") from None


def forecast_last_windows(
    case: LoadedCase, model: Family, options: Forecasts, *, keep_quantiles: bool = False
) -> ScoredWindows:
    """Forecast and score the last window of every series, with any model of the case's modality."""
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
        keep_quantiles=keep_quantiles,
    )


def _quantities(
    case: LoadedCase, model: Family, scored: ScoredWindows, windows: Windows, levels: int
) -> dict[str, float]:
    """Return sizes, seconds of a forecast and accuracy of a model.

    Raises DataError if no series was scored or all targets are 0.
    """
    from tsfmscope.tasks.compression.compress import memory_bytes, sizes
    from tsfmscope.tasks.compression.timing import forecast_seconds
    from tsfmscope.tasks.models.base import Forecaster

    assert isinstance(model, Forecaster)
    accuracy = scored.accuracy(levels)
    if "wql" not in accuracy:
        reasons = [*(skip.reason for skip in scored.skipped), *(row["reason"] for row in scored.rows.values())]
        reason = next(filter(None, reasons), "all targets are 0")
        raise DataError(
            f"{case.dataset}: no series can be judged on its last {HELD_OUT:.0%}: {reason}; shorten --horizon"
        )
    seconds = forecast_seconds(windows)
    # The first call is a warm-up and is not timed.
    seconds(model)
    fastest = min(seconds(model) for _ in range(ROUNDS))
    return {**sizes(model), "bytes": memory_bytes(model), "seconds": fastest, **accuracy}

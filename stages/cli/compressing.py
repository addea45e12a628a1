"""Compression of a model's attention on a user's series, for `tsfmscope compress`.

The past of each series calibrates the compression; the end of each series measures what it costs.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tsfmscope.stages import compression, forecasts
from tsfmscope.stages.cli.inspection import InspectRequest, LoadedCase, Watch, at_hand, left_out, load_model, placed
from tsfmscope.stages.config.compression import Method
from tsfmscope.stages.config.params import Params, ParamsError
from tsfmscope.stages.pipeline import planning
from tsfmscope.stages.pipeline.targets import check_new
from tsfmscope.tasks.errors import DataError
from tsfmscope.tasks.job import Job, current_context

if TYPE_CHECKING:
    import pyarrow as pa

    from tsfmscope.tasks.models.base import Family
    from tsfmscope.tasks.series.types import Windows

# Share of every series, at its end, that calibration does not see.
HELD_OUT = planning.BUNDLED_HELD_OUT
# Timed forecasts, of which the fastest is reported: other work on the machine can only add time.
ROUNDS = 3
# Windows of a timed forecast.
TIMED = 4


@dataclass(frozen=True)
class CompressOptions:
    """Options of the compression.

    to: share of the attention parameters that is kept. method: a method of docs/compression.md. windows:
    number of calibration windows. precision: precision in which the compressed model runs; None: as the model
    itself.
    """

    to: float
    method: str = "aware-both"
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


def compress(params: Params, asked: InspectRequest, how: CompressOptions, folder: Path, watch: Watch) -> CompressResult:
    """Save the compressed model to a new or empty folder and return what the compression costs.

    The values after compression are those of the model as loaded from the folder. Quantities: parameters,
    attention_parameters, bytes of the weights in memory, seconds of a forecast of TIMED windows, and wql and
    mase of the last window of every series. mase is missing if it is defined for no series.
    Raises ParamsError for a folder that is not empty or a model that does not forecast; DataError if no
    series has a window before its last fifth, or none has one in it; and the errors of `inspect`.
    """
    from tsfmscope.tasks.entries.forecasts import UNSCORED
    from tsfmscope.tasks.models.base import Forecaster
    from tsfmscope.tasks.series.tables import series_table

    check_new(folder)
    with placed(asked.device):
        it = at_hand(params, asked, watch)
        if not isinstance(it.model, Forecaster):
            raise ParamsError(
                f"{asked.model}: family {it.model.name} forecasts nothing, so that nothing says what is lost"
            )
        table = series_table(it.series.series)
        windows = _windows(it, how, table)
        watch("forecasting before", 0, 0)
        forecast = _forecast(it, it.model, table)
        before = _quantities(it, it.model, forecast, windows)
        watch("compressing", 0, 0)
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".compress-") as work:
            _compress(it, how, table, Path(work, "model"))
            # check_new has checked that the folder is empty.
            if folder.exists():
                folder.rmdir()
            Path(work, "model").rename(folder)
        watch("forecasting after", 0, 0)
        saved = replace(it.source, folder=folder).running_in(how.precision)
        smaller = load_model(saved, asked.device)
        after = _quantities(it, smaller, _forecast(it, smaller, table), windows)
    rows = [
        {"quantity": name, "before": value, "after": after[name], "ratio": after[name] / value if value else None}
        for name, value in before.items()
    ]
    unscored = Counter(row["reason"].removeprefix(UNSCORED) for row in forecast if not row["n_future"])
    return CompressResult(rows, len(forecast) - unscored.total(), left_out(it.series, unscored))


def _calibration(it: LoadedCase, how: CompressOptions, windows: int) -> dict[str, Any]:
    condition, dataset = it.params.conditions[it.cell.condition], it.params.datasets.sets[it.cell.dataset]
    return {
        "datasets": [it.cell.dataset], "windows": windows, "context": condition.context, "horizon": dataset.horizon,
        "held_out": HELD_OUT, "seed": it.params.seed,
    }  # fmt: skip


def _windows(it: LoadedCase, how: CompressOptions, table: pa.Table) -> Windows:
    """Return windows of the past, for timing forecasts. Raises DataError if there is none."""
    from tsfmscope.tasks.entries.compression import calibration_windows

    return calibration_windows(it.model, {it.cell.dataset: table}, _calibration(it, how, TIMED))[0]


def _compress(it: LoadedCase, how: CompressOptions, table: pa.Table, folder: Path) -> None:
    """Compress the model with the options of its stored weights, and save it.

    The loaded model is changed in place if it has these options; else the stored weights are loaded.
    """
    from tsfmscope.tasks.entries.compression import compress as work

    stored = it.source.with_stored_options()
    model = it.model if stored == it.source else load_model(stored, current_context().device)
    method = Method.model_validate({"method": how.method, "ranks": {"budget": how.to}})
    spec = {
        **{"model": f"{it.cell.model}@{how.method}-{how.to:g}", "base_model": it.cell.model, "rank": how.to},
        **planning.stored_spec(it.row),
        "method": method.plain(),
        "calibration": _calibration(it, how, how.windows),
    }
    try:
        work(Job(compression.COMPRESS, spec), {"folder": folder, "series": {it.cell.dataset: table}}, model)
    # Raised for ranks that are not possible.
    except ValueError as error:
        raise ParamsError(f"--to {how.to:g} --method {how.method}: {error}") from None


def _forecast(it: LoadedCase, model: Family, table: pa.Table) -> Sequence[Mapping[str, Any]]:
    """Return one row of `forecasts` per series, for its last window."""
    from tsfmscope.tasks.entries.forecasts import evaluate
    from tsfmscope.tasks.models.base import Forecaster

    assert isinstance(model, Forecaster)
    spec = forecasts.spec(it.params, it.cell) | planning.model_spec(it.row) | {"held_out": HELD_OUT}
    return evaluate(Job(forecasts.TASK, spec), table, model).rows


def _quantities(
    it: LoadedCase, model: Family, forecast: Sequence[Mapping[str, Any]], windows: Windows
) -> dict[str, float]:
    from tsfmscope.tasks.compression.timing import forecast_seconds
    from tsfmscope.tasks.entries.compression import sizes
    from tsfmscope.tasks.models.base import Forecaster

    assert isinstance(model, Forecaster)
    seconds = forecast_seconds(windows)
    # The first call is a warm-up and is not timed.
    seconds(model)
    return {
        **sizes(model),
        "bytes": sum(one.numel() * one.element_size() for one in model.network.parameters()),
        "seconds": min(seconds(model) for _ in range(ROUNDS)),
        **_scores(forecast, it.cell.dataset, len(forecast[0]["levels"])),
    }


def _scores(rows: Sequence[Mapping[str, Any]], dataset: str, levels: int) -> dict[str, float]:
    """Return the WQL pooled over the series' windows and, if any series has a MASE, the mean of the MASEs.

    Raises DataError if no series was scored or all targets are 0.
    """
    target = sum(row["target_abs"] for row in rows)
    if not target:
        why = next((row["reason"] for row in rows if row["reason"]), "all targets are 0")
        raise DataError(f"{dataset}: no series can be judged on its last {HELD_OUT:.0%}: {why}; shorten --horizon")
    mase = [row["mase"] for row in rows if row["mase"] is not None]
    found = {"wql": sum(row["quantile_loss"] for row in rows) / (levels * target)}
    return found | ({"mase": sum(mase) / len(mase)} if mase else {})

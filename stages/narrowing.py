"""`tsfm-lens compress`: a model with narrower heads, calibrated on the past of one's series, judged on their end."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stages import compression, forecasts, planning
from stages.blocks.compression import Method
from stages.looking import Asked, AtHand, Watch, at_hand, left_out, load_model, placed
from stages.params import Params, ParamsError
from tasks.errors import DataError
from tasks.sweep.jobs import Job, place

if TYPE_CHECKING:
    import pyarrow as pa

    from tasks.models.base import Family
    from tasks.series.types import Windows

HELD_OUT = planning.BUNDLED_HELD_OUT  # the end of every series, which calibration does not see
ROUNDS = 3  # forecasts of which the fastest is told: what else a machine does only adds
TIMED = 4  # windows of such a forecast


@dataclass(frozen=True)
class Narrowing:
    """How: a method of docs/compression.md, the share of attention parameters that is left, calibration windows.

    precision: what the compressed model runs in; None: as the model itself.
    """

    to: float
    method: str = "aware-both"
    windows: int = 32
    precision: str | None = None


@dataclass(frozen=True)
class Narrowed:
    """rows: one a quantity, before and after; n_series: those that were scored; skipped: reason -> the others."""

    rows: list[dict[str, Any]]
    n_series: int
    skipped: Mapping[str, int]


def compress(params: Params, asked: Asked, how: Narrowing, folder: Path, watch: Watch) -> Narrowed:
    """Save the compressed model to a folder that is new or empty; what it costs.

    The figures after are those of the model as loaded from the folder. Quantities: parameters, attention_parameters,
    bytes of the weights in memory, seconds of a forecast of TIMED windows, wql and mase of the last window of every
    series. Raises ParamsError for a folder that holds something, a model that forecasts nothing, DataError where no
    series has a window before and after its last fifth begins, and as `look` does.
    """
    from tasks.forecasting.evaluate import UNSCORED
    from tasks.models.base import Forecaster
    from tasks.series.tables import series_table

    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ParamsError(f"{folder}: is there already, and not empty; name a new folder")
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
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".compress-") as work:
            _compress(it, how, table, Path(work, "model"))
            if folder.exists():
                folder.rmdir()  # empty, as was checked
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
    return Narrowed(rows, len(forecast) - unscored.total(), left_out(it.series, unscored))


def _calibration(it: AtHand, how: Narrowing, windows: int) -> dict[str, Any]:
    condition, dataset = it.params.conditions[it.cell.condition], it.params.datasets.sets[it.cell.dataset]
    return {
        "datasets": [it.cell.dataset], "windows": windows, "context": condition.context, "horizon": dataset.horizon,
        "held_out": HELD_OUT, "seed": it.params.seed,
    }  # fmt: skip


def _windows(it: AtHand, how: Narrowing, table: pa.Table) -> Windows:
    """Windows of the past, to time forecasts on. DataError where there is none."""
    from tasks.compression.compressing import calibration_windows

    return calibration_windows(it.model, {it.cell.dataset: table}, _calibration(it, how, TIMED))[0]


def _compress(it: AtHand, how: Narrowing, table: pa.Table, folder: Path) -> None:
    """Compress the model as it is stored, in place where it runs so, and save it."""
    from tasks.compression.compressing import compress as work

    stored = it.source.stored()
    model = it.model if stored == it.source else load_model(stored, place().device)
    method = Method.model_validate({"method": how.method, "ranks": {"budget": how.to}})
    spec = {
        **{"model": f"{it.cell.model}@{how.method}-{how.to:g}", "base_model": it.cell.model, "rank": how.to},
        **planning.stored_spec(it.row),
        "method": method.plain(),
        "calibration": _calibration(it, how, how.windows),
    }
    try:
        work(Job(compression.COMPRESS, spec), {"folder": folder, "series": {it.cell.dataset: table}}, model)
    except ValueError as error:  # of ranks that cannot be
        raise ParamsError(f"--to {how.to:g} --method {how.method}: {error}") from None


def _forecast(it: AtHand, model: Family, table: pa.Table) -> Sequence[Mapping[str, Any]]:
    """A row of `forecasts` a series, of its last window."""
    from tasks.forecasting.evaluate import evaluate
    from tasks.models.base import Forecaster

    assert isinstance(model, Forecaster)
    spec = forecasts.spec(it.params, it.cell) | planning.model_spec(it.row) | {"held_out": HELD_OUT}
    return evaluate(Job(forecasts.TASK, spec), table, model).rows


def _quantities(it: AtHand, model: Family, forecast: Sequence[Mapping[str, Any]], windows: Windows) -> dict[str, float]:
    from tasks.compression.clock import forecast_seconds
    from tasks.compression.compressing import sizes
    from tasks.models.base import Forecaster

    assert isinstance(model, Forecaster)
    seconds = forecast_seconds(windows)
    seconds(model)  # does not count
    return {
        **sizes(model),
        "bytes": sum(one.numel() * one.element_size() for one in model.network.parameters()),
        "seconds": min(seconds(model) for _ in range(ROUNDS)),
        **_scores(forecast, it.cell.dataset, len(forecast[0]["levels"])),
    }


def _scores(rows: Sequence[Mapping[str, Any]], dataset: str, levels: int) -> dict[str, float]:
    """WQL over all series, and the mean of their MASE where there is one."""
    target = sum(row["target_abs"] for row in rows)
    if not target:
        why = next((row["reason"] for row in rows if row["reason"]), "all targets are 0")
        raise DataError(f"{dataset}: no series can be judged on its last {HELD_OUT:.0%}: {why}; shorten --horizon")
    mase = [row["mase"] for row in rows if row["mase"] is not None]
    found = {"wql": sum(row["quantile_loss"] for row in rows) / (levels * target)}
    return found | ({"mase": sum(mase) / len(mase)} if mase else {})

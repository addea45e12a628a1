"""`forecast`: quantiles of the steps after every series of a table."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from tsfmscope import progress
from tsfmscope.errors import ArgumentError, DataError
from tsfmscope.files import TABLES, save_as, table_writers
from tsfmscope.forecasting.scores import window_seed
from tsfmscope.functions.arguments import Context, Horizon, MaxSeries, Seed, checked
from tsfmscope.functions.load import LoadedForecaster, Model, as_forecaster
from tsfmscope.models.base import QUANTILES
from tsfmscope.models.cards import License
from tsfmscope.report import render
from tsfmscope.report.render import apply_style, image_writers
from tsfmscope.series.calendar import future_times
from tsfmscope.series.catalog import modality
from tsfmscope.series.data_sets import Data, log_left_out, usable_series
from tsfmscope.series.files.options import reading_of
from tsfmscope.series.types import Series, Skip, count_reasons
from tsfmscope.series.windows import last_contexts

if TYPE_CHECKING:
    from tsfmscope.report.style import Chart

logger = logging.getLogger("tsfmscope")

SUFFIXES = (*TABLES, *render.SUFFIXES)
# Fewest observed steps of a context; with two, every model returns about the last value.
MIN_OBSERVED = 3
# Steps of context of a model without a limit.
UNLIMITED = 2048
# Windows per call of the model.
BATCH = 512
# Sample paths of a model that draws them.
SAMPLES = 100
# Steps of history in the picture, in horizons.
HISTORY = 4
# Columns of the quantiles.
LEVELS = [f"{level:g}" for level in QUANTILES]


@dataclass(frozen=True, eq=False)
class ForecastResult:
    """Forecasts of the steps after every series.

    Attributes:
        frame: one row per series and step: item_id, timestamp, mean, 0.1 … 0.9. `mean` is the median, which is what
            these models forecast in the middle. timestamp: a time or, of series without times, the number of the step,
            from 0 at the first value.
        skipped: series without a forecast, and why.
        title: model, data, context and horizon in words.
        license: licence of the model's weights.
        series: the series that have a forecast, in the order of the frame.
    """

    frame: pd.DataFrame
    skipped: Sequence[Skip]
    title: str
    license: License
    series: Sequence[Series]

    def plot(self) -> Chart:
        """Return an Altair chart of at most six series, evenly spaced: history, median and 80 % interval."""
        return apply_style(self._draw())

    def save(self, path: str | Path) -> Path:
        """Write the table (.csv, .parquet) or the picture (.png, .svg, .pdf); the whole file or none.

        Missing parent folders are made. Returns the path. Raises ValueError for another suffix, OSError if the file
        cannot be written.
        """
        writers = {**table_writers(self.frame), ".csv": self._write_csv, **image_writers(self._draw, self.title)}
        return save_as(path, writers)

    def _write_csv(self, path: Path) -> None:
        """Write the table, with dates alone where no step has a time of day."""
        import pyarrow as pa
        from pyarrow import csv

        table, times = self.frame, self.frame["timestamp"]
        if pd.api.types.is_datetime64_any_dtype(times):
            form = "%Y-%m-%d" if (times.dt.normalize() == times).all() else "%Y-%m-%d %H:%M:%S%z"
            table = table.assign(timestamp=times.map({time: time.strftime(form) for time in times.unique()}))
        # Four times as fast as pandas, which formats each number by itself.
        csv.write_csv(pa.Table.from_pandas(table, preserve_index=False), path)

    def _draw(self) -> Chart:
        from tsfmscope.report.forecasts import PANELS, Panel, draw_forecasts
        from tsfmscope.report.style import pick_evenly

        horizon = len(self.frame) // len(self.series)
        panels = []
        for at in pick_evenly(range(len(self.series)), PANELS):
            item, rows = self.series[at], self.frame.iloc[at * horizon : (at + 1) * horizon]
            shown = item.values[-HISTORY * horizon :]
            past = _step_times(item, len(item.values) - len(shown), len(shown), has_times=_has_times(self.series))
            panels.append(Panel(item.series, past, shown, rows["timestamp"], rows["0.1"], rows["mean"], rows["0.9"]))
        return draw_forecasts(panels, self.title)

    def __repr__(self) -> str:
        return f"{self.title}\n{self.frame}"

    def _repr_html_(self) -> str:
        return f"<p>{self.title}</p>\n{self.frame._repr_html_()}"  # type: ignore[operator]


@checked
def forecast(
    model: LoadedForecaster | Model | str | Path,
    data: Data,
    *,
    horizon: Horizon = None,
    context: Context = None,
    max_series: MaxSeries = None,
    seed: Seed = 0,
    **reading: Any,
) -> ForecastResult:
    """Forecast the steps after every series.

    Times go on at the frequency of the series, in their time zone. Short and constant series have a forecast too; a
    series with fewer than 3 observed steps has none and is listed.

    Args:
        model: model, as in `inspect`, or a folder that `export` wrote with onnx, which needs no torch.
        data: series, as in `inspect`.
        horizon: steps to forecast, 1 to 1,024; None: the data set's, or 24.
        context: last steps of each series that the model reads; None: as many as the model can.
        max_series: largest number of series, a seeded sample; None: all.
        seed: seed of sample paths, for models that draw them.
        reading: as in `inspect`.

    Returns:
        `frame` is a table with one row per series and step: item_id, timestamp, mean and the quantiles 0.1 to 0.9, in
        the units of the data. `mean` is the median.

    Raises:
        ArgumentError: an argument is out of range, or the model does not forecast. It is a ValueError.
        DataError: the data contain no series, or none is long enough.
        HealthError: a forecast is not finite.
    """
    progress.show("loading the model")
    loaded = as_forecaster(model)
    progress.show("reading the data")
    named = usable_series(data, max_series=max_series, seed=seed, reading=reading_of(reading), takes_any=True)
    if (kind := modality(named.dataset.source)) != "series":
        raise ArgumentError(f"{named.name}: {kind} data, expected time series; name other data")
    steps = horizon or named.dataset.horizon
    longest = max(len(item.values) for item in named.loaded.series)
    read = min(context or longest, longest, loaded.max_context or UNLIMITED)
    series, skipped = [], list(named.loaded.skipped)
    for item in named.loaded.series:
        if np.isfinite(item.values[-read:]).sum() < MIN_OBSERVED:
            skipped.append(Skip(item.series, f"under {MIN_OBSERVED} observed values in the last {read} steps"))
        else:
            series.append(item)
    if not series:
        reasons = "; ".join(f"{n} series: {reason}" for reason, n in count_reasons(skipped).items())
        raise DataError(f"{named.name}: no series can be forecast: {reasons}; give longer series")
    log_left_out(count_reasons(skipped))
    values = _forecast(loaded, series, read, steps, seed)
    # [S, Q, H] -> [S * H, Q]
    table = pd.DataFrame(values.transpose(0, 2, 1).reshape(-1, len(LEVELS)), columns=LEVELS)
    table.insert(0, "item_id", np.repeat(np.array([item.series for item in series], dtype=object), steps))
    table.insert(1, "timestamp", _timestamps(series, steps))
    table.insert(2, "mean", table[LEVELS[QUANTILES.index(0.5)]])
    title = f"{loaded.name} on {named.name}: {len(series):,} series, context {read}, horizon {steps}"
    return ForecastResult(table, skipped, title, loaded.license, series)


def _forecast(model: LoadedForecaster, series: Sequence[Series], context: int, horizon: int, seed: int) -> np.ndarray:
    """Return the quantiles of every series, [S, Q, H]."""
    values = np.empty(
        (len(series), len(QUANTILES), horizon), dtype=np.result_type(*{item.values.dtype for item in series})
    )
    # Windows of one call have one frequency and one season.
    groups: dict[tuple[str, int | None], list[int]] = {}
    for at, item in enumerate(series):
        groups.setdefault((item.freq, item.season), []).append(at)
    show, n_done = progress.with_rate("forecasting"), 0
    for rows in groups.values():
        for first in range(0, len(rows), BATCH):
            batch = rows[first : first + BATCH]
            forecaster, read = model.model.with_condition(context, 0)
            windows = last_contexts([series[at] for at in batch], read, horizon)
            seeds = [window_seed(f"forecast/{seed}", name) for name in windows.series]
            values[batch] = forecaster.forecast(windows, levels=QUANTILES, samples=SAMPLES, seeds=seeds).values
            n_done += len(batch)
            show(n_done, len(series))
    return values


def _has_times(series: Sequence[Series]) -> bool:
    return all(item.freq and item.start is not None for item in series)


def _timestamps(series: Sequence[Series], horizon: int) -> Any:
    """Return the times, or numbers, of the steps after every series, [S * H]."""
    has_times = _has_times(series)
    if not has_times:
        logger.warning("timestamp: steps are numbered from 0, since not every series has times at a frequency")
    known: dict[Any, Any] = {}
    parts = []
    for item in series:
        key = (item.start, item.freq, len(item.values), item.tz) if has_times else len(item.values)
        if key not in known:
            known[key] = _step_times(item, len(item.values), horizon, has_times=has_times)
        parts.append(known[key])
    if not has_times:
        return np.concatenate(parts)
    zones = {part.tz for part in parts}
    return (
        pd.concat([pd.Series(part) for part in parts], ignore_index=True)
        if len(zones) > 1
        else parts[0].append(parts[1:])
    )


def _step_times(item: Series, first: int, count: int, *, has_times: bool) -> Any:
    """Return the times of `count` steps of a series from step `first`, or their numbers."""
    if not has_times:
        return np.arange(first, first + count)
    assert item.start is not None
    return future_times(item.start, item.freq, first, count, item.tz)

"""A model of ours as a `fev.ForecastingModel`. `tsfmscope.functions.fev_model` makes one."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import datasets
import fev
import numpy as np

from tsfmscope.errors import DataError
from tsfmscope.forecasting.scores import window_seed
from tsfmscope.functions.load import Model
from tsfmscope.models.base import Forecaster
from tsfmscope.series.types import Windows

logger = logging.getLogger("tsfmscope")

# Windows per call of the model, as in `scores.score_forecasts`.
BATCH = 32
# The point forecast, and the level that every forecast of ours has.
MEDIAN = 0.5


class FevModel(fev.ForecastingModel):
    """Forecasts of one model for the tasks of fev. `fev_model` describes them."""

    model_name = "tsfmscope"

    def __init__(self, model: Model, family: Forecaster, *, context: int, samples: int, seed: int) -> None:
        super().__init__()
        _allow_new_datasets()
        self.model_name = model.name
        self._family = family
        self._context, self._samples, self._seed = context, samples, seed

    def _fit_predict(self, task: fev.Task) -> list[datasets.DatasetDict]:
        return [self._forecast_window(task, window) for window in task.iter_windows()]

    def _forecast_window(self, task: fev.Task, window: fev.EvaluationWindow) -> datasets.DatasetDict:
        """Return target column -> forecasts, one row per series in the order of the window."""
        past, _ = window.get_input_data()
        levels = sorted({*task.quantile_levels, MEDIAN})
        several = len(window.target_columns) > 1
        predictions = {}
        for column in window.target_columns:
            # Several targets have the names that `fev.convert_input_data(as_univariate=True)` gives them.
            names = [f"{name}_{column}" if several else str(name) for name in past[window.id_column]]
            windows = _read_windows(task, window, past, column, names, self._context)
            with self._record_inference_time():
                forecasts = list(self._forecast_batches(windows, levels, str(window.cutoff)))
            # [N, Q, H]
            quantiles = np.concatenate(forecasts)
            columns = {"predictions": quantiles[:, levels.index(MEDIAN)]}
            columns |= {str(level): quantiles[:, levels.index(level)] for level in task.quantile_levels}
            predictions[column] = datasets.Dataset.from_dict(
                {name: values.astype(np.float64).tolist() for name, values in columns.items()},
                features=task.predictions_schema,
            )
        return datasets.DatasetDict(predictions)

    def _forecast_batches(self, windows: Windows, levels: list[float], cutoff: str) -> Iterator[np.ndarray]:
        for start in range(0, len(windows), BATCH):
            batch = windows.take(slice(start, start + BATCH))
            seeds = [window_seed(f"{self._seed}/{cutoff}", name) for name in batch.series]
            yield self._family.forecast(batch, levels=levels, samples=self._samples, seeds=seeds).values


def _allow_new_datasets() -> None:
    """Let fev 0.10 load data with datasets 5, which no longer passes an argument that a class of fev requires.

    fev declares datasets < 5. A checkout has a newer one, since `tool.uv` overrides the bounds of uni2ts. The default
    is the value that older versions pass.
    """
    fev.utils.PatchedDownloadConfig.__post_init__.__defaults__ = ("deprecated",)


def _read_windows(
    task: fev.Task, window: fev.EvaluationWindow, past: datasets.Dataset, column: str, names: list[str], context: int
) -> Windows:
    """Return the last `context` steps of one target of every series, left-padded with NaN.

    Raises DataError, with the series' name, for a value that is infinite or no number.
    """
    contexts = np.full((len(past), context), np.nan, dtype=np.float32)
    origins, starts = [], []
    for row, name, item in zip(contexts, names, past, strict=True):
        values = np.asarray(item[column])
        if not np.issubdtype(values.dtype, np.number) or np.isinf(values).any():
            raise DataError(
                f"{task.dataset_path}: column {column!r} of series {name!r}: expected numbers, NaN where missing, got "
                f"{'infinity' if np.issubdtype(values.dtype, np.number) else values.dtype}; change the data set"
            )
        steps = values[-context:]
        row[context - len(steps) :] = steps
        origins.append(len(values))
        starts.append(item[window.timestamp_column][0])
    if empty := int(np.isnan(contexts).all(axis=1).sum()):
        logger.warning(
            f"{task.dataset_path}: {empty} of {len(past)} series have no observed value among the last {context} steps "
            f"before {window.cutoff}; their forecasts mean nothing"
        )
    return Windows(
        context=contexts, future=np.full((len(past), window.horizon), np.nan, dtype=np.float32), series=names,
        origin=np.array(origins, dtype=np.int64), dataset=task.dataset_path, freq=task.freq, season=task.seasonality,
        starts=np.array(starts, dtype="datetime64[ms]"),
    )  # fmt: skip

"""Series that a user passes to the public Python API."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from tsfmscope.stages.cli.certifying import list_data
from tsfmscope.stages.config import DataSet
from tsfmscope.stages.config.defaults import params_here
from tsfmscope.stages.config.params import Params
from tsfmscope.stages.pipeline.model_reference import slug
from tsfmscope.stages.pipeline.named_sets import NamedSeries, find_data_set, load_named_set
from tsfmscope.tasks.defaults import HORIZON, MIN_CONTEXT
from tsfmscope.tasks.errors import DataError
from tsfmscope.tasks.series.catalog import CATALOG
from tsfmscope.tasks.series.files.columns import UNNAMED, Columns
from tsfmscope.tasks.series.files.parquet import LoadedSeries, select
from tsfmscope.tasks.series.files.time_grid import missing_times
from tsfmscope.tasks.series.files.user_files import load_frame, load_own
from tsfmscope.tasks.series.seasons import season_of
from tsfmscope.tasks.series.types import Series, Windows, count_reasons, describe_reasons

logger = logging.getLogger("tsfmscope")

# Names of the columns that a user may name.
KEYS = {field.name for field in fields(Columns)}
# Block of params.yaml that a user's own series would have.
OWN = DataSet(source="folder", file="data", horizon=HORIZON)
# What a user may pass as series.
Data = pd.DataFrame | pd.Series | np.ndarray | str | Path


def usable_series(
    params: Params, data: Data, max_series: int | None, seed: int, columns: Mapping[str, Any] | None = None
) -> NamedSeries:
    """Return the usable series with a name for the data.

    columns: keyword arguments of `Columns`. Raises DataError if there is no usable series, ValueError for an
    unknown key of `columns` or for columns of data that are no table.
    """
    if unknown := set(columns or ()) - KEYS:
        raise ValueError(f"columns: got the key {min(unknown)!r}, expected time, id, value, time_format or season")
    named = Columns(**(columns or {}))
    sample = None if max_series is None else (max_series, seed)
    if isinstance(data, pd.Series):
        data = data.to_frame("value" if data.name is None else str(data.name))
    if isinstance(data, pd.DataFrame):
        loaded = load_frame(data, name="data", columns=named, sample=sample)
        found = NamedSeries("data", OWN, loaded)
    elif isinstance(data, str | Path):
        found = _named_series(params, str(data), max_series, seed, named)
    else:
        found = NamedSeries("data", OWN, _array_series(np.asarray(data), sample))
    loaded = found.loaded
    for line in loaded.notes:
        logger.info(line)
    if loaded.missing:
        logger.warning(missing_times(loaded.missing))
    if not loaded.series:
        raise DataError(f"data: no usable series: {describe_reasons(count_reasons(loaded.skipped))}")
    return found


def list_items(data: Sequence[Data]) -> list[tuple[str, Data]]:
    """Return pairs of a name and a data set; texts and paths are their own names."""
    items: list[tuple[str, Data]] = []
    for number, item in enumerate(data):
        if isinstance(item, str | Path):
            items += [(name, name) for name in list_data(params_here(), [str(item)])]
        else:
            items.append((f"data[{number}]", item))
    return items


def _named_series(params: Params, text: str, max_series: int | None, seed: int, columns: Columns) -> NamedSeries:
    if (dataset := find_data_set(text, params)) is not None:
        if columns != UNNAMED:
            raise ValueError(f"columns: expected a file or a DataFrame, got the data set {text!r}")
        loaded = load_named_set(text, dataset, params, max_series=max_series, seed=seed)
        return NamedSeries(text, dataset, loaded)
    path = Path(text).expanduser()
    if not path.exists():
        raise DataError(f"data: got {text!r}, expected a file, a folder, or one of {', '.join(CATALOG)}")
    name = slug(path.resolve().name.partition(".")[0]) or "data"
    sample = None if max_series is None else (max_series, seed)
    loaded = load_own(path, name=name, columns=columns, min_length=params.datasets.min_length, sample=sample)
    return NamedSeries(name, OWN, loaded)


def _array_series(values: np.ndarray, sample: tuple[int, int] | None) -> LoadedSeries:
    if values.ndim not in (1, 2) or not np.issubdtype(values.dtype, np.number):
        raise DataError(
            f"data: got an array {values.shape} of {values.dtype}, expected numbers [step] or [series, step]"
        )
    rows = np.atleast_2d(values).astype(np.float32)
    return select((Series("data", f"series-{i}", row) for i, row in enumerate(rows)), sample=sample)


def last_contexts(series: Sequence[Series], context: int) -> Windows:
    """Return the last `context` steps of every series, with one unknown step after them."""
    values = np.full((len(series), context), np.nan, dtype=np.float32)
    for row, item in zip(values, series, strict=True):
        steps = item.values[-context:]
        row[context - len(steps) :] = steps
    starts = [item.start for item in series]
    has_starts = any(start is not None for start in starts)
    return Windows(
        values,
        np.full((len(series), 1), np.nan, dtype=np.float32),
        [item.series for item in series],
        np.array([len(item.values) for item in series], dtype=np.int64),
        series[0].dataset,
        series[0].freq,
        season_of(series),
        np.array(starts, dtype="datetime64[ms]") if has_starts else None,
    )


def check_counts(context: int | None, **counts: int | None) -> None:
    """Raise ValueError for a context shorter than MIN_CONTEXT or a count below 1."""
    check_at_least(MIN_CONTEXT, context=context)
    check_at_least(1, **counts)


def check_at_least(smallest: int, **counts: int | None) -> None:
    """Raise ValueError for a count below the smallest one."""
    for name, count in counts.items():
        if count is not None and count < smallest:
            raise ValueError(f"{name}: got {count}, expected at least {smallest}")

"""Series that a user passes: tables, arrays, files, folders, and names of data sets."""

from __future__ import annotations

import difflib
import logging
import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa

from tsfmscope.arrays import real_array
from tsfmscope.defaults import HORIZON
from tsfmscope.errors import ArgumentError, DataError
from tsfmscope.files import slug
from tsfmscope.series.catalog import CATALOG
from tsfmscope.series.data_sets import DataSet, data_root, draw_kernel_set, find_data_set, load_data_set
from tsfmscope.series.files.columns import UNNAMED, Columns
from tsfmscope.series.files.parquet import MIN_LENGTH, LoadedSeries, select, series_note
from tsfmscope.series.files.time_grid import missing_times
from tsfmscope.series.files.user_files import list_files, load_frame, load_own
from tsfmscope.series.types import Series, count_reasons, describe_reasons

logger = logging.getLogger("tsfmscope")

# Names of the columns that a user may name.
KEYS = [field.name for field in fields(Columns)]
# Description of a user's own series.
OWN = DataSet(source="folder", file="data", horizon=HORIZON)
# What a user may pass as series.
Data = pd.DataFrame | pd.Series | np.ndarray | Sequence[Any] | Mapping[str, Any] | str | Path


class NamedSeries(NamedTuple):
    """Usable series, the name of their data set, and its description."""

    name: str
    dataset: DataSet
    loaded: LoadedSeries

    def count_left_out(self, without_window: Mapping[str, int]) -> dict[str, int]:
        """Return reason -> number of series that cannot be used at all, or that gave no window."""
        return dict(Counter(count_reasons(self.loaded.skipped)) + Counter(without_window))


def usable_series(
    data: Data, *, max_series: int | None, seed: int, columns: Mapping[str, Any] | None = None, takes_any: bool = False
) -> NamedSeries:
    """Return the usable series with a name for the data, and log what was read.

    columns: keyword arguments of `Columns`. takes_any: short and constant series are usable too. Raises DataError, with
    the reasons, if there is no usable series; ArgumentError for a name that is none, for an unknown key of `columns`,
    or for columns of data that are no table.
    """
    if unknown := set(columns or ()) - set(KEYS):
        raise ArgumentError(f"columns: got the key {min(unknown)!r}, expected {', '.join(KEYS)}")
    named = Columns(**(columns or {}))
    sample = None if max_series is None else (max_series, seed)
    min_length = None if takes_any else MIN_LENGTH
    if isinstance(data, str | Path):
        return _read_named(str(data), named, max_series, seed, min_length)
    data = _to_frame(data)
    if isinstance(data, pd.DataFrame):
        loaded = load_frame(data, name="data", columns=named, min_length=min_length, sample=sample)
    else:
        loaded = select(_array_series(data), min_length=min_length, sample=sample)
    _log_series("data", loaded)
    return NamedSeries("data", OWN, loaded)


def _read_named(text: str, columns: Columns, max_series: int | None, seed: int, min_length: int | None) -> NamedSeries:
    """Return the usable series of a data set, a file or a folder that a user names."""
    if (dataset := find_data_set(text)) is not None:
        if columns != UNNAMED:
            raise ArgumentError(f"names of columns: expected a file, got the data set {text!r}")
        if dataset.source == "kernelsynth":
            series = draw_kernel_set(text, dataset, seed)
            return NamedSeries(text, dataset, LoadedSeries(series, [], series))
        loaded = load_data_set(text, dataset, root=data_root(), max_series=max_series, seed=seed, min_length=min_length)
        if not loaded.series or len(loaded.series) < loaded.available:
            _log_series(text, loaded)
        return NamedSeries(text, dataset, loaded)
    path = Path(os.path.expanduser(text))
    if not os.path.exists(path):
        near = difflib.get_close_matches(text, CATALOG, 2)
        hint = f"did you mean {' or '.join(near)}?" if near else f"known: {', '.join(CATALOG)}"
        raise ArgumentError(f"data: got {text!r}, which is no file, no folder and no data set; {hint}")
    name = slug(path.resolve().name.partition(".")[0]) or "data"
    sample = None if max_series is None else (max_series, seed)
    loaded = load_own(path, name=name, columns=columns, min_length=min_length, sample=sample)
    _log_series(text, loaded)
    return NamedSeries(name, OWN, loaded)


def readers(
    data: Data | Sequence[Data], *, max_series: int | None, seed: int, columns: Mapping[str, Any] | None
) -> dict[str, Callable[[], NamedSeries]]:
    """Return the reader of each data set, by its name; each file of a folder is one.

    data: one data set as in `usable_series`, or a list of them. Raises ArgumentError for an empty list.
    """
    items: list[tuple[str, Data]] = []
    data_sets: list[Any] = list(data) if isinstance(data, list | tuple) else [data]
    if not data_sets:
        raise ArgumentError("data: got an empty list, expected a data set")
    for number, item in enumerate(data_sets):
        if isinstance(item, str | Path):
            items += [(name, name) for name in _list_files(str(item))]
        else:
            items.append((f"data[{number}]", item))
    return {
        name: partial(usable_series, item, max_series=max_series, seed=seed, columns=columns) for name, item in items
    }


def _list_files(text: str) -> list[str]:
    """Return the name of a data set or a file, or the files of a folder."""
    path = Path(os.path.expanduser(text))
    if find_data_set(text) is None and path.is_dir():
        return [str(file) for file in list_files(path)]
    return [text]


def _log_series(label: str, loaded: LoadedSeries) -> None:
    """Log what was read. Raises DataError, with the reasons, if no series is usable."""
    for line in loaded.notes:
        logger.warning(line)
    if not loaded.series:
        raise DataError(f"{label}: no usable series: {describe_reasons(count_reasons(loaded.skipped))}")
    logger.warning(series_note(label, loaded))
    if loaded.missing:
        logger.warning(missing_times(loaded.missing))


def _to_frame(data: Any) -> Any:
    """Return a Series, a list or dict of them, or a table as a DataFrame, and other data unchanged."""
    items = data if isinstance(data, Mapping) else dict(enumerate(data)) if isinstance(data, list | tuple) else {}
    if items and all(isinstance(item, pd.Series) for item in items.values()):
        names = [str(name) if isinstance(data, Mapping) else f"series-{name}" for name in items]
        data = pd.concat([item.rename("value") for item in items.values()], keys=names, names=["series"])
    elif hasattr(data, "__dataframe__") and not isinstance(data, pd.DataFrame):
        # Tables of pyarrow, polars and other packages.
        data = pa.table(data).to_pandas()
    if isinstance(data, pd.Series):
        data = data.to_frame("value" if data.name is None else data.name)
    return data


def _array_series(data: Any) -> Iterable[Series]:
    """Yield the series of an array [step] or [series, step], of a list of arrays, or of arrays by name."""
    if isinstance(data, Mapping):
        named = [(str(name), _real_values(values)) for name, values in data.items()]
    elif isinstance(data, list | tuple) and data and all(np.ndim(item) == 1 for item in data):
        named = [(f"series-{i}", _real_values(values)) for i, values in enumerate(data)]
    else:
        values = _real_values(data)
        rows = np.atleast_2d(values) if values.ndim in (1, 2) else [values]
        named = [(f"series-{i}", row) for i, row in enumerate(rows)]
    for name, values in named:
        if values.ndim != 1:
            raise DataError(
                f"data: got an array {values.shape} of {values.dtype}, expected numbers [step] or [series, step]"
            )
        yield Series("data", name, values)


def _real_values(data: Any) -> np.ndarray:
    """Return numbers in float64, or float32 if they are; masked ones are NaN. Raises DataError for other data."""
    try:
        data = _without_mask(data)
        # Decimals and other objects that are numbers, and None where missing.
        is_object = isinstance(data, list | tuple | np.ndarray) and np.asarray(data).dtype == object
        values = np.array(data, dtype=np.float64) if is_object else real_array(data)
    except (TypeError, ValueError, OverflowError):
        kind = getattr(data, "dtype", "")
        raise DataError(
            "data: expected a DataFrame, a Series, numbers [step] or [series, step], or a list or dict of [step], got "
            f"{type(data).__name__}{kind and f' of {kind}'} that is no array of real numbers"
        ) from None
    return values if values.dtype == np.float32 else values.astype(np.float64)


def _without_mask(data: Any) -> Any:
    if not np.ma.isMaskedArray(data):
        return data
    return np.ma.filled(data.astype(np.result_type(data.dtype, np.float32)), np.nan)


def log_left_out(skipped: Mapping[str, int]) -> None:
    """Log the number of series left out, one line per reason."""
    for reason, n in skipped.items():
        logger.warning(f"left out: {n} series: {reason}")

"""Series that a user passes to the public Python API."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from stages.config import DataSet
from stages.config.defaults import params_here
from stages.config.params import Params, ParamsError
from stages.planning.named_sets import NamedSeries
from tsfmscope.cli.certifying import list_data
from tsfmscope.cli.inspection import log_series, read_series, resolve_data
from tsfmscope.defaults import HORIZON, MAX_CONTEXT, MIN_CONTEXT
from tsfmscope.errors import DataError
from tsfmscope.functions.measures import real_array
from tsfmscope.series.files.columns import UNNAMED, Columns
from tsfmscope.series.files.parquet import select
from tsfmscope.series.files.user_files import load_frame
from tsfmscope.series.seasons import season_of
from tsfmscope.series.types import Series, Windows

logger = logging.getLogger("tsfmscope")

# Names of the columns that a user may name.
KEYS = [field.name for field in fields(Columns)]
# Block of params.yaml that a user's own series would have.
OWN = DataSet(source="folder", file="data", horizon=HORIZON)
# What a user may pass as series.
Data = pd.DataFrame | pd.Series | np.ndarray | Sequence[Any] | Mapping[str, Any] | str | Path


def usable_series(
    params: Params,
    data: Data,
    max_series: int | None,
    seed: int,
    columns: Mapping[str, Any] | None = None,
    *,
    takes_any: bool = False,
) -> NamedSeries:
    """Return the usable series with a name for the data.

    columns: keyword arguments of `Columns`. takes_any: short and constant series are usable too. Raises DataError if
    there is no usable series, ValueError for an unknown key of `columns` or for columns of data that are no table.
    """
    if unknown := set(columns or ()) - set(KEYS):
        raise ValueError(f"columns: got the key {min(unknown)!r}, expected {', '.join(KEYS)}")
    named = Columns(**(columns or {}))
    if isinstance(data, str | Path):
        try:
            resolved = resolve_data(params, str(data), named)
        except ParamsError as error:
            # Named columns of a data set that is no table are a wrong argument.
            raise (DataError if named == UNNAMED else ValueError)(str(error)) from None
        return read_series(params, str(data), *resolved, named, max_series, seed, takes_any=takes_any)
    sample = None if max_series is None else (max_series, seed)
    min_length = None if takes_any else params.datasets.min_length
    data = _to_frame(data)
    if isinstance(data, pd.DataFrame):
        loaded = load_frame(data, name="data", columns=named, min_length=min_length, sample=sample)
    else:
        loaded = select(_array_series(data), min_length=min_length, sample=sample)
    log_series("data", loaded)
    return NamedSeries("data", OWN, loaded)


def list_items(data: Sequence[Data]) -> list[tuple[str, Data]]:
    """Return pairs of a name and a data set; texts and paths are their own names."""
    items: list[tuple[str, Data]] = []
    for number, item in enumerate(data):
        if isinstance(item, str | Path):
            items += [(name, name) for name in list_data(params_here(), [str(item)])]
        else:
            items.append((f"data[{number}]", item))
    return items


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


def last_contexts(series: Sequence[Series], context: int) -> Windows:
    """Return the last `context` steps of every series, with one unknown step after them."""
    dtype = np.result_type(np.float32, *{item.values.dtype for item in series})
    values = np.full((len(series), context), np.nan, dtype=dtype)
    for row, item in zip(values, series, strict=True):
        steps = item.values[-context:]
        row[context - len(steps) :] = steps
    starts = [item.start for item in series]
    has_starts = any(start is not None for start in starts)
    return Windows(
        values,
        np.full((len(series), 1), np.nan, dtype=dtype),
        [item.series for item in series],
        np.array([len(item.values) for item in series], dtype=np.int64),
        series[0].dataset,
        series[0].freq,
        season_of(series),
        np.array(starts, dtype="datetime64[ms]") if has_starts else None,
    )


def check_counts(context: int | None, **counts: int | None) -> None:
    """Raise ValueError for a context outside MIN_CONTEXT to MAX_CONTEXT, or a count below 1."""
    check_context(MIN_CONTEXT, context)
    check_at_least(1, **counts)


def check_context(smallest: int, context: int | None) -> None:
    """Raise ValueError for a context shorter than the smallest one or longer than MAX_CONTEXT."""
    check_at_least(smallest, context=context)
    if context is not None and context > MAX_CONTEXT:
        raise ValueError(f"context: got {context}, expected at most {MAX_CONTEXT} steps")


def check_at_least(smallest: int, **counts: int | None) -> None:
    """Raise ValueError for a count that is no whole number or is below the smallest one."""
    for name, count in counts.items():
        if count is None:
            continue
        if not isinstance(count, int | np.integer):
            raise ValueError(f"{name}: got {count}, expected a whole number")
        if count < smallest:
            raise ValueError(f"{name}: got {count}, expected at least {smallest}")

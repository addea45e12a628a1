"""Readers of sources of whole series: Parquet files, data sets of the hub, and those that statsmodels includes.

A Parquet file has one row per series: item_id, start, freq, target. A data set of the hub has the layout of
`autogluon/chronos_datasets`; it is downloaded only if allowed.
"""

from __future__ import annotations

import glob
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from importlib import import_module
from pathlib import Path

import duckdb
import numpy as np
import pandas as pd
import psutil
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tsfmscope.errors import DataError
from tsfmscope.files import check_regular
from tsfmscope.hub import download
from tsfmscope.series.calendar import gluonts_seasonality, season_of
from tsfmscope.series.tables import is_number_list, list_values
from tsfmscope.series.types import Series, Skip

# Smallest number of steps of a usable series.
MIN_LENGTH = 32
# Exceptions that readers raise for a bad file, for text not in UTF-8, and for times out of range.
DAMAGED = (pa.ArrowException, duckdb.Error, OSError, RuntimeError, ValueError, LookupError, OverflowError)
# Bytes of memory that one value of a file takes while it is read.
BYTES = 16


@dataclass(frozen=True)
class LoadedSeries:
    """Series of one source, and what was left out.

    usable: all usable series, before sampling; skipped: unusable series, with reasons; missing: series -> number of
    times between its own that the source lacks (their values are NaN); notes: lines for the user on how the source
    was read.
    """

    series: list[Series]
    skipped: list[Skip]
    usable: Sequence[Series]
    missing: Mapping[str, int] = field(default_factory=dict)
    notes: Sequence[str] = ()

    @property
    def available(self) -> int:
        """Number of usable series before sampling."""
        return len(self.usable)


def load_parquet(
    path: Path, *, dataset: str | None = None, domain: str = "", items: str | Sequence[str] | None = None
) -> list[Series]:
    """Read the series of one file, usable or not.

    Args:
        path: file with columns item_id (string), start (timestamp or date), freq (string: a pandas alias), target
            (list of numbers, NaN or null where missing).
        dataset: name of the data set; None: the file's name without its suffix.
        domain: copied to every series.
        items: regular expression that must match a whole item id, or the list of ids to read.

    Raises:
        DataError: names file, column, what was expected and found. Causes: a file or column that cannot be
            read, an id that is null or occurs twice, a start outside the years 1 to 9999, a frequency that
            pandas does not know, a filter without a match, too little memory.
    """
    table = _read(path)
    table = table.filter(pa.array(match_ids(table["item_id"].to_pylist(), items, path), pa.bool_()))
    for freq in pc.unique(table["freq"]).to_pylist():
        try:
            gluonts_seasonality(freq or "")
        except DataError as error:
            raise DataError(f"{path.name}, column 'freq': {error}") from error
    try:
        starts = table["start"].to_pylist()
    except OverflowError as error:
        raise DataError(f"{path.name}, column 'start': expected times of the years 1 to 9999, got {error}") from error
    name = dataset or path.stem
    return [
        Series(name, item, values, domain, freq or "", start, provenance=f"file {path.name}")
        for item, start, freq, values in zip(
            table["item_id"].to_pylist(), starts, table["freq"].to_pylist(), list_values(table["target"]), strict=True
        )
    ]


def select(
    series: Iterable[Series], *, min_length: int | None = MIN_LENGTH, sample: tuple[int, int] | None = None
) -> LoadedSeries:
    """Return the usable series and the skipped ones.

    min_length: shorter series are skipped, and constant ones; None: neither. sample: (max_series, seed): take a seeded
    sample, in their order, where more series are usable.
    """
    usable, skipped = [], []
    for item in series:
        reason = unusable(item.values, min_length)
        if reason is None:
            usable.append(item)
        else:
            skipped.append(Skip(item.series, reason))
    selected = usable
    if sample is not None and len(usable) > sample[0]:
        rng = np.random.default_rng(sample[1])
        selected = [usable[i] for i in sorted(rng.choice(len(usable), size=sample[0], replace=False))]
    return LoadedSeries(selected, skipped, usable)


def unusable(values: np.ndarray, min_length: int | None = MIN_LENGTH) -> str | None:
    """Return why a series cannot be used (empty, all NaN, infinite, too short, constant), or None.

    Values beyond the range of float32 count as infinite. min_length: None: short and constant series can be used.
    """
    observed = values[~np.isnan(values)]
    if not len(values):
        return "empty"
    if not len(observed):
        return "all NaN"
    if np.abs(observed).max() > np.finfo(np.float32).max:
        return "infinite"
    if min_length is None:
        return None
    if len(values) < min_length:
        return f"too short: under {min_length} steps"
    return "constant" if observed.min() == observed.max() else None


def series_note(label: object, loaded: LoadedSeries) -> str:
    """Write the line that states how series were read: their number, frequency, season and first time."""
    series = loaded.series
    first, season = series[0], season_of(series)
    starts = [item.start.replace(tzinfo=None) for item in series if item.start is not None]
    count = f"{label}: {len(series)} series" if len(series) > 1 else f"{label}: 1 series of {len(first.values)} steps"
    if len(series) < loaded.available:
        count = f"{label}: {len(series)} of {loaded.available} series (a seeded sample)"
    if first.freq:
        start = f", from {min(starts):%Y-%m-%d %H:%M}" if starts else ""
        return f"{count}, frequency {first.freq}, season {season}{start}"
    problem = f" from {min(starts):%Y-%m-%d %H:%M}, no regular frequency" if starts else ", no times"
    return f"{count}{problem}: steps are taken as equally spaced, season {season}; else set --freq"


def open_series_file(path: Path) -> pq.ParquetFile:
    """Open a Parquet file of series and check its columns; only the schema is read.

    Raises:
        DataError: the file is missing or damaged, or a column is missing or has another type.
    """
    try:
        check_regular(path)
        file = pq.ParquetFile(path)
        schema = file.schema_arrow
        # Reading the names may raise: they need not be UTF-8.
        names = schema.names
    except FileNotFoundError as error:
        raise DataError(f"{path.name}: no such file in {path.parent}; check the name and datasets.root") from error
    except DAMAGED as error:
        raise DataError(f"{path.name}: expected a Parquet file, got {shorten(error)}") from error
    for column, (expected, fits) in _COLUMNS.items():
        types = [field.type for field in schema if field.name == column]
        if len(types) != 1 or not fits(types[0]):
            description = ", ".join(map(str, types)) if types else f"none (columns: {', '.join(names)})"
            raise DataError(f"{path.name}, column {column!r}: expected one of type {expected}, got {description}")
    return file


def _read(path: Path) -> pa.Table:
    file = open_series_file(path)
    try:
        check_room(numbers_of(path), path)
        table = file.read(columns=list(_COLUMNS))
        # Finds text that is not UTF-8, and list offsets out of bounds.
        table.validate(full=True)
        table = table.set_column(0, "item_id", table["item_id"].cast(pa.string()))
        table = table.set_column(1, "start", table["start"].cast(pa.timestamp("ms"), safe=False))
        table = table.set_column(2, "freq", table["freq"].cast(pa.string()))
    except DAMAGED as error:
        raise DataError(f"{path.name}: the file is damaged or its text is not UTF-8: {shorten(error)}") from error
    counts = Counter(table["item_id"].to_pylist())
    worst, times = max(counts.items(), key=lambda item: (item[0] is None, item[1]), default=("", 1))
    if worst is None or times > 1:
        raise DataError(
            f"{path.name}, column 'item_id': expected every id once and none null, got {worst!r} {times} times"
        )
    return table


def numbers_of(path: Path) -> int:
    """Return the number of values of all columns, from a Parquet file's footer.

    The file's size is no bound, because equal values take about a bit each. DuckDB reads the footer, because
    pyarrow 26 ends the process where a footer's histograms do not fit (found by fuzzing).
    """
    with duckdb.connect() as connection:
        question = "select sum(num_values)::hugeint from parquet_metadata(?)"
        return int(connection.execute(question, [glob.escape(str(path))]).fetchall()[0][0] or 0)


def check_room(numbers: int, path: Path) -> None:
    """Raise DataError if a file's values do not fit into free memory."""
    free = psutil.virtual_memory().available
    if (needed := BYTES * numbers) > free:
        raise DataError(
            f"{path.name}: unpacks to {numbers} values, which take {needed / 1e9:.1f} GB to read, and {free / 1e9:.1f} "
            "are free; split it into several files"
        )


def match_ids(ids: Sequence[str], items: str | Sequence[str] | None, path: Path) -> list[bool]:
    """Return for each id whether `items` of `load_parquet` selects it. Raises DataError if it selects none."""
    if items is None:
        return [True] * len(ids)
    if isinstance(items, str):
        try:
            pattern = re.compile(items)
        except re.error as error:
            raise DataError(f"items: expected a regular expression, got {items!r} ({error})") from error
        matches = [pattern.fullmatch(item) is not None for item in ids]
    else:
        absent = sorted(set(items) - set(ids))
        if absent:
            raise DataError(f"{path.name}: item ids {absent[:5]} are not in the file; it has {', '.join(ids[:5])} ...")
        matches = [item in set(items) for item in ids]
    if ids and not any(matches):
        raise DataError(f"{path.name}: no item id matches {items!r}; it has {', '.join(ids[:5])} ...")
    return matches


def shorten(error: BaseException) -> str:
    """Return the class and the text of an error in one line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"


def _is_text(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        return _is_text(kind.value_type)
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


_COLUMNS: dict[str, tuple[str, Callable[[pa.DataType], bool]]] = {
    "item_id": ("string", _is_text),
    "start": ("timestamp", lambda kind: bool(pa.types.is_timestamp(kind) or pa.types.is_date(kind) or _is_text(kind))),
    "freq": ("string", _is_text),
    "target": ("list of numbers", is_number_list),
}


HOUR_NANOSECONDS = 3_600_000_000_000
# Number of times from which the frequency of a row is inferred.
FIRST_TIMES = 16
REPOSITORY = "autogluon/chronos_datasets"


def load_hub(name: str, *, allowed: bool, domain: str = "", cache: Path | None = None) -> list[Series]:
    """Read one data set of a hub repository (a folder of Parquet shards), such as "m4_hourly".

    A row has an id, a list of times (timestamp) and one list of numbers per variate. Each variate is one
    series, named id, or id:column where there are several. The frequency is inferred from the first times. If
    `allowed` is false, only the hub's local cache is used.

    Raises:
        HubError: the hub is not allowed, does not answer, or has no such data set; the message gives a fix.
        DataError: a shard is damaged or of another layout.
        ValueError: `name` is not a folder's name.
    """
    if not re.fullmatch(r"[\w.-]+", name):
        raise ValueError(f"hub data set: expected a folder's name in {REPOSITORY}, got {name!r}")
    folder, revision = download(REPOSITORY, [f"{name}/*.parquet"], allowed=allowed, kind="dataset", cache=cache)
    shards = sorted((folder / name).glob("*.parquet"))
    provenance = f"hub {REPOSITORY}@{revision} {name}"
    return [item for shard in shards for item in _series(shard, name, domain, provenance)]


def infer_freq(times: Sequence[datetime] | pd.DatetimeIndex) -> str:
    """Return the pandas alias of a regular grid of times; "" for others and for fewer than 3 times."""
    if len(times) < 3:
        return ""
    index = times if isinstance(times, pd.DatetimeIndex) else pd.DatetimeIndex(list(times))
    steps = np.unique(np.diff(index.as_unit("ns").asi8))
    # Months, business days and the like differ by whole hours. pandas takes a thousand times as long to find nothing.
    if len(steps) > 1 and (steps % HOUR_NANOSECONDS).any():
        return ""
    return pd.infer_freq(index) or ""


def _series(shard: Path, name: str, domain: str, provenance: str) -> list[Series]:
    try:
        table = pq.read_table(shard)
    except DAMAGED as error:
        raise DataError(f"{name}/{shard.name}: expected a Parquet file, got {' '.join(str(error).split())}") from error
    variates = [field.name for field in table.schema if is_number_list(field.type)]
    if "id" not in table.schema.names or "timestamp" not in table.schema.names or not variates:
        columns = ", ".join(f"{field.name} {field.type}" for field in table.schema)
        raise DataError(f"{name}/{shard.name}: expected columns id, timestamp and lists of numbers, got {columns}")
    values = {variate: list_values(table[variate]) for variate in variates}
    # All times of a row would be large as Python objects.
    heads = pc.list_slice(table["timestamp"], 0, FIRST_TIMES).cast(pa.list_(pa.timestamp("ms")), safe=False)
    series = []
    for row, (item, times) in enumerate(zip(table["id"].to_pylist(), heads.to_pylist(), strict=True)):
        freq, start = infer_freq(times or []), times[0] if times else None
        for variate in variates:
            label = str(item) if len(variates) == 1 else f"{item}:{variate}"
            series.append(Series(name, label, values[variate][row], domain, freq, start, provenance=provenance))
    return series


# Data set -> (domain, frequency, first time); from statsmodels.datasets, public domain.
BUNDLED: dict[str, tuple[str, str, datetime]] = {
    "sunspots": ("nature", "YS", datetime(1700, 1, 1)),
    "co2": ("nature", "W", datetime(1958, 3, 29)),
    "elnino": ("nature", "MS", datetime(1950, 1, 1)),
    "nile": ("nature", "YS", datetime(1871, 1, 1)),
    "macrodata": ("economics", "QS", datetime(1959, 1, 1)),
}


def load_bundled(name: str) -> list[Series]:
    """Read one of sunspots, co2, elnino, nile (one series each) or macrodata (one series per numeric column).

    Raises:
        ValueError: `name` is none of these.
    """
    if name not in BUNDLED:
        raise ValueError(f"bundled data set: expected one of {sorted(BUNDLED)}, got {name!r}")
    domain, freq, start = BUNDLED[name]
    frame = import_module(f"statsmodels.datasets.{name}").load_pandas().data
    if name == "elnino":
        # The table has one row per year and one column per month.
        columns = {name: frame.drop(columns="YEAR").to_numpy(dtype=np.float64).reshape(-1)}
    else:
        frame = frame.drop(columns=["YEAR", "year", "quarter"], errors="ignore")
        columns = {str(column): frame[column].to_numpy(dtype=np.float64) for column in frame}
        columns = columns if len(columns) > 1 else {name: next(iter(columns.values()))}
    return [
        Series(name, column, values.astype(np.float32), domain, freq, start, provenance=f"statsmodels.datasets.{name}")
        for column, values in columns.items()
    ]

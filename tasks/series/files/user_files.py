"""Reader of users' CSV and Parquet files: one row per value (long) or one column per series (wide)."""

from __future__ import annotations

import csv
import dataclasses
import gzip
import re
import zlib
from collections.abc import Iterable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
from jaxtyping import Float32
from pandas.api import types

from tsfmscope.tasks.errors import DataError
from tsfmscope.tasks.regular_files import check_regular
from tsfmscope.tasks.series.files.date_columns import parse_numeric_times, parse_times
from tsfmscope.tasks.series.files.number_columns import decimal_sign, is_text, row_of, to_numbers
from tsfmscope.tasks.series.files.parquet import (
    DAMAGED,
    MIN_LENGTH,
    LoadedSeries,
    check_room,
    load_parquet,
    numbers_of,
    select,
)
from tsfmscope.tasks.series.files.time_grid import FREQ_STEPS, Grid, frequency, grid
from tsfmscope.tasks.series.types import Series, Skip

SUFFIXES = (".csv", ".tsv", ".csv.gz", ".parquet")
DELIMITERS = ",;\t|"
# Column names that mark a column of times.
TIMES = {"ds", "date", "datetime", "time", "timestamp"}
# Column names that mark a column of numbers that only counts the rows.
STEPS = {"", "index", "step", "t", "year", "unnamed: 0"}
# Column names that mark a column of series ids.
IDS = {"item_id", "unique_id", "id", "series", "series_id", "item"}
VALUES = {"target", "value", "values", "y"}
# Columns of the platform's own layout with one row per series (see tsfmscope.tasks.series.files.parquet).
OURS = {"item_id", "start", "freq", "target"}
# UTF-8 with or without the byte order mark that spreadsheets write.
UTF8 = "utf-8-sig"
# Largest number of characters read from a header line, and number of bytes unpacked at a time.
HEADER, CHUNK = 2**20, 2**22
# Number of characters after the header from which the decimal sign is inferred.
SAMPLE = 10_000
NUMBER = re.compile(r"[+-]?[\d.,]+(e[+-]?\d+)?", re.IGNORECASE)
# Cells that cannot be column names: dates, times of day, fractions.
NO_NAME = re.compile(
    r"(?<!\w)(\d{4}[-/.]\d{1,2}[-/.]\d{1,2}|\d{1,2}[-/.]\d{1,2}[-/.]\d{2,4})(?!\d)|\d:\d\d|^\d{1,2} [a-z]{3,9} \d{4}"
    r"|^[+-]?\d*[.,]\d+(e[+-]?\d+)?$",
    re.IGNORECASE,
)
# Largest number of columns that a note lists by name.
NAMED = 5
# Share of a column's cells that must be times for it to count as a column of times. The key says
# whether the column's name marks it as times.
TIMELY = {False: 0.9, True: 0.5}


def load_own(
    path: Path, *, name: str, min_length: int = MIN_LENGTH, sample: tuple[int, int] | None = None
) -> LoadedSeries:
    """Read the usable series of a file, or of all files of a folder, in their order.

    Parquet with the columns item_id, start, freq, target is read as the pipeline reads it. Any other table
    has one row per time, in one of two layouts:

    - long: a column of ids and a column of values. The ids are in a column named item_id, unique_id, series
      ..., or in a text column that distinguishes rows of one time. The values are in a column named target,
      value or y, or in the only numeric column.
    - wide: each numeric column is one series.

    A column of times orders the rows and gives the frequency, which must be the same for all series. A time
    that is missing between regular times becomes a missing value of each series. A column that counts rows
    (year, index, step) is left out.

    CSV files are UTF-8 with the delimiter , ; tab or |. A decimal comma is recognised where the delimiter is
    not a comma.

    The notes list which columns were read in which role, which were not read, and how many series were
    sampled.

    name: name of the data set. min_length: shorter series are skipped. sample: as in `parquet.select`. Raises
    DataError also for a CSV without a header, a table with ids and several columns of values, and series of
    several frequencies.
    """
    series_of_files: list[Series] = []
    skipped: list[Skip] = []
    missing: dict[str, int] = {}
    notes: list[str] = []
    for file in _list_files(path):
        series, unusable, file_notes = _read_file(file, name)
        notes += file_notes
        prefix = f"{file.name.partition('.')[0]}:" if path.is_dir() else ""
        series_of_files += [dataclasses.replace(item, series=prefix + item.series) for item, _ in series]
        missing |= {prefix + item.series: n for item, n in series if n}
        skipped += [Skip(prefix + skip.series, skip.reason) for skip in unusable]
    selected = select(_with_common_freq(series_of_files, path), min_length=min_length, sample=sample)
    missing = {item.series: missing[item.series] for item in selected.series if item.series in missing}
    if len(selected.series) < selected.available:
        notes.append(
            f"{path}: {len(selected.series)} of {selected.available} series, a seeded sample; --max-series takes more"
        )
    return LoadedSeries(selected.series, skipped + selected.skipped, selected.available, missing, notes)


def load_frame(
    frame: pd.DataFrame, *, name: str, min_length: int = MIN_LENGTH, sample: tuple[int, int] | None = None
) -> LoadedSeries:
    """Read the usable series of a table with one row per time, in the layouts of `load_own`.

    Raises DataError, naming the column, for a table that is not in one of these layouts.
    """
    pairs, notes = _read_frame(frame, Path("DataFrame"), name)
    selected = select((item for item, _ in pairs), min_length=min_length, sample=sample)
    names = {item.series for item in selected.series}
    missing = {item.series: n for item, n in pairs if n and item.series in names}
    return LoadedSeries(selected.series, selected.skipped, selected.available, missing, notes)


def _list_files(path: Path) -> list[Path]:
    """Return the file, or the readable files of a folder by name; DataError if there is none."""
    if not path.is_dir():
        try:
            check_regular(path)
        except OSError as error:
            raise DataError(f"{path}: {error.strerror}; name a file or a folder of files") from error
        return [path]
    files = sorted(file for file in path.iterdir() if file.is_file() and file.name.endswith(SUFFIXES))
    if not files:
        raise DataError(f"{path}: the folder contains no file of {', '.join(SUFFIXES)}; add one, or name a file")
    return files


def _with_common_freq(series: list[Series], path: Path) -> list[Series]:
    """Give all series the frequency that some of them have; DataError if they have several.

    A short series, or one with gaps, has no frequency of its own.
    """
    freqs = sorted({item.freq for item in series} - {""})
    if len(freqs) > 1:
        raise DataError(
            f"{path}: series of several frequencies, {', '.join(freqs)}; use the series of one frequency at a time"
        )
    return [dataclasses.replace(item, freq=freqs[0] if freqs else "") for item in series]


def _read_file(path: Path, name: str) -> tuple[list[tuple[Series, int]], list[Skip], list[str]]:
    """Read one file.

    Returns pairs of a series and its number of missing times, the series that the pipeline's reader finds
    unusable, and notes for the user.
    """
    if not path.name.endswith(SUFFIXES):
        raise DataError(f"{path}: expected a file that ends in {', '.join(SUFFIXES)}; convert it to one")
    if path.suffix != ".parquet":
        frame, decimal = _csv(path)
        series, notes = _read_frame(frame, path, name, decimal)
        return series, [], notes
    try:
        if set(pq.read_schema(path).names) >= OURS:
            loaded = load_parquet(path, dataset=name, min_length=1)
            return [(item, 0) for item in loaded.series], loaded.skipped, []
        check_room(numbers_of(path), path)
        frame = pq.ParquetFile(path).read().to_pandas()
    except DAMAGED as error:
        raise DataError(f"{path}: expected a Parquet file, got {_short(error)}") from error
    series, notes = _read_frame(frame, path, name)
    return series, [], notes


def _csv(path: Path) -> tuple[pd.DataFrame, str]:
    """Read a CSV table and return it with its decimal sign."""
    try:
        # Each value takes at least one digit and one delimiter.
        check_room(_characters(path) // 2, path)
        with gzip.open(path, "rt", encoding=UTF8) if path.suffix == ".gz" else path.open(encoding=UTF8) as file:
            header, sample = file.readline(HEADER), file.read(SAMPLE)
        delimiter = max(DELIMITERS, key=header.count)
        _check_header(next(csv.reader([header], delimiter=delimiter), []), path)
        decimal = decimal_sign(sample, delimiter, is_cut=len(sample) == SAMPLE)
        return pd.read_csv(path, sep=delimiter, decimal=decimal, encoding=UTF8, low_memory=False), decimal
    except (
        OSError,
        EOFError,
        zlib.error,
        UnicodeDecodeError,
        pd.errors.ParserError,
        pd.errors.EmptyDataError,
    ) as error:
        raise DataError(f"{path}: expected a CSV table in UTF-8 with a header, got {_short(error)}") from error


def _check_header(cells: list[str], path: Path) -> None:
    """Raise DataError for a first row that contains values: it would be read as names, and its values lost.

    A row contains values if any cell is a date, a time of day or a fraction, if all cells are numbers, or if
    all cells but the first are numbers and the first is no known name of times, steps or ids. A row whose
    first cell is empty is accepted: pandas writes such a header for an index.
    """
    names = [cell.strip() for cell in cells]
    if not names or not names[0]:
        return
    numbers = [bool(NUMBER.fullmatch(cell)) for cell in names if cell]
    is_value = any(NO_NAME.search(cell) for cell in names) or all(numbers)
    if is_value or (len(numbers) > 1 and all(numbers[1:]) and names[0].lower() not in TIMES | STEPS | IDS):
        listed = ", ".join(repr(cell) for cell in cells[:NAMED])
        raise DataError(
            f"{path}: expected a header with the names of the columns, got values in the first row ({listed}); "
            "add a line of column names; no name may be a date or a fraction, and not all may be numbers"
        )


def _characters(path: Path) -> int:
    """Return the number of bytes of a file's text after unpacking.

    A gzipped file may unpack to a thousand times its size, and the size in its footer need not be true, so it
    is unpacked and counted.
    """
    if path.suffix != ".gz":
        return path.stat().st_size
    with gzip.open(path) as file:
        return sum(map(len, iter(lambda: file.read(CHUNK), b"")))


def _read_frame(
    frame: pd.DataFrame, path: Path, name: str, decimal: str = "."
) -> tuple[list[tuple[Series, int]], list[str]]:
    """Extract the series of a table with one row per time.

    Returns pairs of a series and its number of missing times, and notes for the user.
    """
    frame = frame.rename(columns=str)
    # pandas keeps an index of times in Parquet.
    if isinstance(frame.index, pd.DatetimeIndex):
        frame = frame.reset_index(names="timestamp")
    # Any other index may contain a label twice.
    frame = frame.reset_index(drop=True)
    if duplicated := sorted(frame.columns[frame.columns.duplicated()]):
        raise DataError(f"{path}: column {duplicated[0]!r} occurs twice; rename one of them")
    frame, notes = _with_numbers(frame, decimal, path)
    names: list[str] = frame.columns.tolist()
    columns = [c for c in names if _is_number(frame[c]) and c.lower() not in STEPS | TIMES | IDS]
    if not columns:
        kinds = ", ".join(f"{c} ({frame[c].dtype})" for c in frame) or "none"
        raise DataError(f"{path}: expected at least one column of numbers, got {kinds}; check delimiter and header")
    candidates = [c for c in names if c not in columns and c.lower() not in STEPS]
    times, time_notes = _times(frame, [c for c in candidates if c.lower() not in IDS], path)
    candidates = [c for c in candidates if times is None or c != times.name]
    ids = _ids(frame, candidates, times)
    notes += time_notes
    if times is not None:
        times = times.sort_values(kind="stable")
        frame = frame.loc[times.index]
    if ids is not None and frame[ids].isna().any():
        raise DataError(
            f"{path}, column {ids!r}: expected one id per row, got {frame[ids].isna().sum()} rows without an id"
        )
    if ids is not None and len(columns) > 1 and ids.lower() not in IDS and frame[ids].nunique() == 1:
        # A single label for the whole table, such as a country, is no id: each numeric column is a
        # series.
        ids = None
    if ids is not None:
        columns = [_value_column(columns, ids, path)]
    notes.append(_columns_note(frame, path, columns, None if times is None else str(times.name), ids))
    return list(_series(frame, path, name, columns, times, ids)), notes


def _series(
    frame: pd.DataFrame, path: Path, name: str, columns: list[str], times: pd.Series | None, ids: str | None
) -> Iterator[tuple[Series, int]]:
    """Yield one series per column and id, in the order of times, with its number of missing times."""
    clocks = {} if times is None or times.empty else _clocks(times, None if ids is None else frame[ids], path)
    parts: Iterable[tuple[Any, pd.DataFrame]] = [(None, frame)] if ids is None else frame.groupby(ids, sort=False)
    for item, rows in parts:
        clock = clocks.get(item, _Clock())
        for column in columns:
            series = column if item is None else str(item)
            values = clock.to_grid(rows[column].to_numpy(dtype=np.float32, na_value=np.nan))
            yield (
                Series(name, series, values, freq=clock.freq, start=clock.start, provenance=f"file {path.name}"),
                clock.grid.missing if clock.grid else 0,
            )


def _is_number(column: pd.Series) -> bool:
    return bool(types.is_numeric_dtype(column) and not types.is_bool_dtype(column))


def _with_numbers(frame: pd.DataFrame, decimal: str, path: Path) -> tuple[pd.DataFrame, list[str]]:
    """Convert text columns with mostly numbers; return the table and notes on the cells read as missing."""
    numeric: dict[str, pd.Series] = {}
    notes: list[str] = []
    for column in frame.columns:
        if column.lower() in STEPS | TIMES | IDS or not is_text(frame[column]):
            continue
        if (conversion := to_numbers(frame[column], decimal, f"{path}, column {column!r}")) is not None:
            numeric[column] = conversion[0]
            notes += [conversion[1]] if conversion[1] else []
    return frame.assign(**numeric), notes


def _times(frame: pd.DataFrame, among: list[str], path: Path) -> tuple[pd.Series | None, list[str]]:
    """Return the column of times, or None, and notes.

    Columns with a name from TIMES are tried first, then columns of a datetime type, then text columns whose
    cells parse as times. A numeric column counts only if it has a name from TIMES and `parse_numeric_times` can read
    it.

    Raises:
        DataError: some cells of the column are no times. A row of totals would otherwise make it a column of
            ids.
    """
    dated = {c: types.is_datetime64_any_dtype(frame[c]) for c in among}
    for column in sorted(among, key=lambda column: (column.lower() not in TIMES, not dated[column])):
        values, note = frame[column], ""
        if not dated[column]:
            if values.empty or values.isna().all():
                continue
            if _is_number(values):
                if column.lower() in TIMES and (numeric_times := parse_numeric_times(values)) is not None:
                    return numeric_times.rename(column), []
                continue
            location = f"{path}, column {column!r}"
            try:
                times, note = parse_times(values, location)
            except (ValueError, TypeError, OverflowError):
                continue
            wrong = times.isna() & values.notna()
            if wrong.sum() > (1 - TIMELY[column.lower() in TIMES]) * values.notna().sum():
                continue
            if wrong.any():
                raise DataError(
                    f"{location}, {row_of(wrong)}: expected a time as in other rows, got {values[wrong].iloc[0]!r}; "
                    "correct the cell, or remove the row if it is a total"
                )
            values = times
        return values.rename(column), [note] if note else []
    return None, []


def _ids(frame: pd.DataFrame, among: list[str], times: pd.Series | None) -> str | None:
    """Return the column of series ids, or None: one with a name from IDS, else the only suitable text column.

    With times, a text column qualifies if some times occur more than once, or if the column has the same text
    everywhere. If several text columns exist and times repeat, only those that distinguish all rows of one
    time count. Without times, it qualifies if equal ids stand in adjacent rows and there are at least two
    rows per id on average. A column of weekday names does not qualify.
    """
    known = [c for c in among if c.lower() in IDS]
    if known:
        return known[0]
    text = [c for c in among if c.lower() not in TIMES and is_text(frame[c])]
    if times is not None and times.duplicated().any() and len(text) > 1:
        text = [c for c in text if not pd.DataFrame({"time": times, "id": frame[c]}).duplicated().any()]
    if len(text) != 1:
        return None
    ids = frame[text[0]]
    if times is None:
        runs = int((ids.astype(str) != ids.astype(str).shift()).sum())
        tells = runs == ids.nunique(dropna=False) <= len(ids) / 2
    else:
        tells = bool(times.duplicated().any()) or ids.nunique(dropna=False) == 1
    return text[0] if tells else None


def _value_column(columns: list[str], ids: str, path: Path) -> str:
    """Return the column of values next to a column of ids.

    Raises:
        DataError: several columns could be it.
    """
    known = [c for c in columns if c.lower() in VALUES]
    if len(columns) > 1 and len(known) != 1:
        listed = ", ".join(map(repr, columns))
        raise DataError(
            f"{path}: expected one column of values next to the ids in {ids!r}, got {len(columns)} of numbers "
            f"({listed}); rename the one to read to 'target', and no other to 'value' or 'y'"
        )
    return (known or columns)[0]


def _columns_note(frame: pd.DataFrame, path: Path, columns: list[str], times: str | None, ids: str | None) -> str:
    """Write the note on which columns were read as times, ids and values, and which were not read."""
    roles = [f"{role} from {column!r}" for role, column in (("times", times), ("ids", ids)) if column is not None]
    if ids is not None:
        roles.append(f"values from {columns[0]!r}")
    else:
        roles.append(f"a series from each of {len(columns)} of {frame.shape[1]} columns ({_join_names(columns)})")
    unread_columns = [column for column in frame.columns if column not in {*columns, times, ids}]
    unread = f"; not read: {_join_names(unread_columns)}" if unread_columns else ""
    return f"{path}: {', '.join(roles)}{unread}"


def _join_names(columns: list[str]) -> str:
    """List column names, at most NAMED of them."""
    others = f" and {len(columns) - NAMED} more" if len(columns) > NAMED else ""
    return ", ".join(map(repr, columns[:NAMED])) + others


@dataclasses.dataclass(frozen=True)
class _Clock:
    """Times of a series' values.

    start: local time of the first value, without time zone; grid: the regular times, where some of them are
    missing.
    """

    start: datetime | None = None
    freq: str = ""
    grid: Grid | None = None

    def to_grid(self, values: Float32[np.ndarray, " time"]) -> Float32[np.ndarray, " step"]:
        """Return one value per step of the grid, NaN where the time is missing."""
        if self.grid is None:
            return values
        on_grid = np.full(self.grid.steps, np.nan, dtype=np.float32)
        on_grid[self.grid.at] = values
        return on_grid


def _clocks(times: pd.Series, ids: pd.Series | None, path: Path) -> dict[Any, _Clock]:
    """Return the clock of each id (key None for a table without ids).

    times: ascending. Raises DataError where a time of a series is missing or occurs twice.
    """
    parts: Iterable[tuple[Any, pd.Series]] = [(None, times)] if ids is None else times.groupby(ids, sort=False)
    times_by_id = {item: _check_times(part, path) for item, part in parts}
    freqs = {item: frequency(part) for item, part in times_by_id.items()}
    known_freqs = sorted(set(freqs.values()) - {""})
    clocks = {}
    for item, part in times_by_id.items():
        freq = freqs[item]
        regular = freq and len(part) <= FREQ_STEPS
        fit = None if regular else grid(part, [freq] if freq else known_freqs)
        start = part[0].tz_localize(None).to_pydatetime()
        clocks[item] = _Clock(start, fit.freq if fit else freq, fit)
    return clocks


def _check_times(times: pd.Series, path: Path) -> pd.DatetimeIndex:
    """Return the times of one series. Raises DataError where one is missing or occurs twice."""
    if (absent := times.isna()).any() or times.duplicated().any():
        worst = "one is missing" if absent.any() else f"{times[times.duplicated()].iloc[0]} occurs twice"
        raise DataError(
            f"{path}, column {times.name!r}: expected one time per row of each series, but {worst}; name the column "
            "that identifies the series item_id"
        )
    return pd.DatetimeIndex(times)


def _short(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"

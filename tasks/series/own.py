"""Series of one's own files, CSV or Parquet, in the layouts that people have: a column a series, or a row a value."""

from __future__ import annotations

import dataclasses
import gzip
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

from tasks.errors import DataError
from tasks.series.cells import fractions, is_text, numbers, row_of
from tasks.series.dates import of_numbers, parsed
from tasks.series.gaps import FREQ_STEPS, Grid, frequency, grid
from tasks.series.loading import DAMAGED, MIN_LENGTH, Loaded, check_room, load_parquet, numbers_of, select
from tasks.series.types import Series, Skip

SUFFIXES = (".csv", ".tsv", ".csv.gz", ".parquet")
DELIMITERS = ",;\t|"
TIMES = {"ds", "date", "datetime", "time", "timestamp"}  # names of a column of times
STEPS = {"", "index", "step", "t", "year", "unnamed: 0"}  # names of a column of numbers that counts the rows
IDS = {"item_id", "unique_id", "id", "series", "series_id", "item"}  # names of a column that says whose value it is
VALUES = {"target", "value", "values", "y"}
OURS = {"item_id", "start", "freq", "target"}  # a row a series, see tasks.series.loading
UTF8 = "utf-8-sig"  # with or without the mark that spreadsheets put first
HEADER, CHUNK = 2**20, 2**22  # characters of a header's line at most, bytes that are unpacked at a time
SAMPLE = 10_000  # characters after the header, that show how fractions are written
TIMELY = {False: 0.9, True: 0.5}  # share of its cells that makes a column one of times, by whether its name says so


def load_own(path: Path, *, name: str, min_length: int = MIN_LENGTH, sample: tuple[int, int] | None = None) -> Loaded:
    """The usable series of a file, or of the files of a folder, in their order.

    Parquet of item_id, start, freq, target is read as the pipeline does. Any other table has a row a time: either
    a column of ids (item_id, unique_id, series ... or one of text that tells apart rows of one time) and one of values
    (target, value, y, or those of numbers); or each column of numbers is a series. A column of times orders the rows
    and gives the frequency, one for all, and a time that is missing between regular ones is a missing value of each
    series; one that counts rows (year, index, step) is left out. CSV: delimiter , ; tab or |, UTF-8, and a decimal
    comma where numbers are so written between other delimiters. What people should know of it is in the notes.
    name: of the data set; min_length, sample: as in `loading.select`. Raises DataError that names file, what was
    expected and what was found.
    """
    if path.is_dir():
        files = sorted(one for one in path.iterdir() if one.is_file() and one.name.endswith(SUFFIXES))
        if not files:
            raise DataError(f"{path}: the folder holds no file of {', '.join(SUFFIXES)}; put some there, or name one")
    elif path.is_file():
        files = [path]
    else:
        raise DataError(f"{path}: no such file or folder; check the name")
    found: list[Series] = []
    skipped: list[Skip] = []
    missing: dict[str, int] = {}
    notes: list[str] = []
    for file in files:
        series, unusable, said = _of_file(file, name)
        notes += said
        prefix = f"{file.name.partition('.')[0]}:" if path.is_dir() else ""
        found += [dataclasses.replace(one, series=prefix + one.series) for one, _ in series]
        missing |= {prefix + one.series: n for one, n in series if n}
        skipped += [Skip(prefix + one.series, one.reason) for one in unusable]
    freqs = sorted({one.freq for one in found} - {""})
    if len(freqs) > 1:
        raise DataError(f"{path}: series of several frequencies, {', '.join(freqs)}; look at those of one at a time")
    common = freqs[0] if freqs else ""  # a short series, or one with gaps, shows none
    kept = select((dataclasses.replace(one, freq=common) for one in found), min_length=min_length, sample=sample)
    missing = {one.series: missing[one.series] for one in kept.series if one.series in missing}
    return Loaded(kept.series, skipped + kept.skipped, kept.available, missing, notes)


def _of_file(path: Path, name: str) -> tuple[list[tuple[Series, int]], list[Skip], list[str]]:
    """Series with their numbers of missing times, those that the pipeline's reader finds unusable, and notes."""
    if not path.name.endswith(SUFFIXES):
        raise DataError(f"{path}: expected a file that ends in {', '.join(SUFFIXES)}; convert it to one")
    if path.suffix != ".parquet":
        frame, decimal = _csv(path)
        series, notes = _of_frame(frame, path, name, decimal)
        return series, [], notes
    try:
        if set(pq.read_schema(path).names) >= OURS:
            loaded = load_parquet(path, dataset=name, min_length=1)
            return [(one, 0) for one in loaded.series], loaded.skipped, []
        check_room(numbers_of(path), path)
        frame = pq.ParquetFile(path).read().to_pandas()
    except DAMAGED as error:
        raise DataError(f"{path}: expected a Parquet file, got {_short(error)}") from error
    series, notes = _of_frame(frame, path, name)
    return series, [], notes


def _csv(path: Path) -> tuple[pd.DataFrame, str]:
    """The table, and the sign before fractions."""
    try:
        check_room(_characters(path) // 2, path)  # a digit and a delimiter each, at least
        with gzip.open(path, "rt", encoding=UTF8) if path.suffix == ".gz" else path.open(encoding=UTF8) as file:
            header, sample = file.readline(HEADER), file.read(SAMPLE)
        delimiter = max(DELIMITERS, key=header.count)
        decimal = fractions(sample, delimiter, cut=len(sample) == SAMPLE)
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


def _characters(path: Path) -> int:
    """Bytes of its text: a gzipped file may hold a thousand times its own size, and its footer need not say so."""
    if path.suffix != ".gz":
        return path.stat().st_size
    with gzip.open(path) as file:
        return sum(map(len, iter(lambda: file.read(CHUNK), b"")))


def _of_frame(
    frame: pd.DataFrame, path: Path, name: str, decimal: str = "."
) -> tuple[list[tuple[Series, int]], list[str]]:
    """The series of a table, a row a time, each with the number of its times that are missing; and notes."""
    frame = frame.rename(columns=str)
    if isinstance(frame.index, pd.DatetimeIndex):  # as pandas keeps it in Parquet
        frame = frame.reset_index(names="timestamp")
    frame = frame.reset_index(drop=True)  # another index may hold a label twice
    if duplicated := sorted(frame.columns[frame.columns.duplicated()]):
        raise DataError(f"{path}: column {duplicated[0]!r} stands twice; rename one")
    frame, notes = _with_numbers(frame, decimal, path)
    named: list[str] = frame.columns.tolist()
    columns = [c for c in named if _is_number(frame[c]) and c.lower() not in STEPS | TIMES | IDS]
    if not columns:
        kinds = ", ".join(f"{c} ({frame[c].dtype})" for c in frame) or "none"
        raise DataError(f"{path}: expected at least one column of numbers, got {kinds}; check delimiter and header")
    others = [c for c in named if c not in columns and c.lower() not in STEPS]
    times, said = _times(frame, [c for c in others if c.lower() not in IDS], path)
    others = [c for c in others if times is None or c != times.name]
    ids = _ids(frame, others, times)
    notes += said + _left_out(frame, [c for c in others if c != ids], path)
    if times is not None:
        times = times.sort_values(kind="stable")
        frame = frame.loc[times.index]
    if ids is not None and frame[ids].isna().any():
        raise DataError(f"{path}, column {ids!r}: expected an id a row, got {frame[ids].isna().sum()} rows without")
    columns = [c for c in columns if ids is not None and c.lower() in VALUES][:1] or columns
    return list(_series(frame, path, name, columns, times, ids)), notes


def _series(
    frame: pd.DataFrame, path: Path, name: str, columns: list[str], times: pd.Series | None, ids: str | None
) -> Iterator[tuple[Series, int]]:
    """A series a column and id, in the order of times; with the number of its times that are missing."""
    clocks = {} if times is None or times.empty else _clocks(times, None if ids is None else frame[ids], path)
    parts: Iterable[tuple[Any, pd.DataFrame]] = [(None, frame)] if ids is None else frame.groupby(ids, sort=False)
    for item, rows in parts:
        clock = clocks.get(item, _Clock())
        for column in columns:
            series = column if item is None else str(item) if len(columns) == 1 else f"{item}:{column}"
            values = clock.spread(rows[column].to_numpy(dtype=np.float32, na_value=np.nan))
            yield (
                Series(name, series, values, freq=clock.freq, start=clock.start, provenance=f"file {path.name}"),
                clock.grid.missing if clock.grid else 0,
            )


def _is_number(column: pd.Series) -> bool:
    return bool(types.is_numeric_dtype(column) and not types.is_bool_dtype(column))


def _with_numbers(frame: pd.DataFrame, decimal: str, path: Path) -> tuple[pd.DataFrame, list[str]]:
    """The table with columns of text that has mostly numbers as numbers, and what was done to them."""
    found: dict[str, pd.Series] = {}
    notes: list[str] = []
    for column in frame.columns:
        if column.lower() in STEPS | TIMES | IDS or not is_text(frame[column]):
            continue
        if (read := numbers(frame[column], decimal, f"{path}, column {column!r}")) is not None:
            found[column] = read[0]
            notes += [read[1]] if read[1] else []
    return frame.assign(**found), notes


def _times(frame: pd.DataFrame, among: list[str], path: Path) -> tuple[pd.Series | None, list[str]]:
    """The column of times: of that type, or the first whose text is times; those of a telling name first. And notes.

    DataError where some cells of it are none: a row of totals would make it a column of ids.
    """
    dated = {c: types.is_datetime64_any_dtype(frame[c]) for c in among}
    for column in sorted(among, key=lambda one: (one.lower() not in TIMES, not dated[one])):
        values, said = frame[column], ""
        if not dated[column]:
            if values.empty or values.isna().all():
                continue
            if _is_number(values):
                if column.lower() in TIMES and (found := of_numbers(values)) is not None:
                    return found.rename(column), []
                continue
            where = f"{path}, column {column!r}"
            try:
                times, said = parsed(values, where)
            except (ValueError, TypeError, OverflowError):
                continue
            wrong = times.isna() & values.notna()
            if wrong.sum() > (1 - TIMELY[column.lower() in TIMES]) * values.notna().sum():
                continue
            if wrong.any():
                raise DataError(
                    f"{where}, {row_of(wrong)}: expected a time, as in its other rows, got {values[wrong].iloc[0]!r}; "
                    "mend the cell, or take the row out if it is a total"
                )
            values = times
        return values.rename(column), [said] if said else []
    return None, []


def _ids(frame: pd.DataFrame, among: list[str], times: pd.Series | None) -> str | None:
    """The column that says whose value a row holds: of a telling name, or the only one of text that can.

    It can where rows of one time differ by it, or where it says the same everywhere; without times, where equal ids
    stand together. A column of days' names cannot.
    """
    named = [c for c in among if c.lower() in IDS]
    if named:
        return named[0]
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


def _left_out(frame: pd.DataFrame, columns: list[str], path: Path) -> list[str]:
    """A line for each of these columns of text, which is no series; flags need none."""
    shown = [(c, frame[c].dropna()) for c in columns if is_text(frame[c])]
    return [
        f"{path}, column {column!r}: left out, neither numbers nor times nor ids: text such as {cells.iloc[0]!r}"
        for column, cells in shown
        if len(cells)
    ]


@dataclasses.dataclass(frozen=True)
class _Clock:
    """When a series' values are. start: by the wall's clock; grid: where times are missing between regular ones."""

    start: datetime | None = None
    freq: str = ""
    grid: Grid | None = None

    def spread(self, values: Float32[np.ndarray, " time"]) -> Float32[np.ndarray, " step"]:
        """A value a step of the grid, NaN where its time is missing."""
        if self.grid is None:
            return values
        spread = np.full(self.grid.steps, np.nan, dtype=np.float32)
        spread[self.grid.at] = values
        return spread


def _clocks(times: pd.Series, ids: pd.Series | None, path: Path) -> dict[Any, _Clock]:
    """The clock of each id, or of None; times: ascending. DataError where one is missing or stands twice."""
    parts: Iterable[tuple[Any, pd.Series]] = [(None, times)] if ids is None else times.groupby(ids, sort=False)
    found = {item: _checked(part, path) for item, part in parts}
    freqs = {item: frequency(part) for item, part in found.items()}
    known = sorted(set(freqs.values()) - {""})
    clocks = {}
    for item, part in found.items():
        freq = freqs[item]
        regular = freq and len(part) <= FREQ_STEPS
        fitted = None if regular else grid(part, [freq] if freq else known)
        start = part[0].tz_localize(None).to_pydatetime()
        clocks[item] = _Clock(start, fitted.freq if fitted else freq, fitted)
    return clocks


def _checked(times: pd.Series, path: Path) -> pd.DatetimeIndex:
    """Times of a series, none missing and none twice."""
    if (absent := times.isna()).any() or times.duplicated().any():
        worst = "one is missing" if absent.any() else f"{times[times.duplicated()].iloc[0]} stands twice"
        raise DataError(
            f"{path}, column {times.name!r}: expected a time a row of each series, but {worst}; call a column that "
            "says whose value a row holds item_id"
        )
    return pd.DatetimeIndex(times)


def _short(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"

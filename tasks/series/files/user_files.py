"""Reader of users' CSV and Parquet files: one row per value (long) or one column per series (wide)."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
from jaxtyping import Float32

from tsfmscope.tasks.errors import DataError
from tsfmscope.tasks.regular_files import check_regular
from tsfmscope.tasks.series.files.columns import UNNAMED, Columns
from tsfmscope.tasks.series.files.csv_table import read_csv
from tsfmscope.tasks.series.files.parquet import (
    DAMAGED,
    MIN_LENGTH,
    LoadedSeries,
    check_room,
    load_parquet,
    match_ids,
    numbers_of,
    select,
)
from tsfmscope.tasks.series.files.roles import Roles, assign_roles, join, parse_times
from tsfmscope.tasks.series.files.time_grid import FREQ_STEPS, Grid, frequency, grid
from tsfmscope.tasks.series.types import Series, Skip

SUFFIXES = (".csv", ".tsv", ".csv.gz", ".parquet")
# Columns of the platform's own layout with one row per series (see tsfmscope.tasks.series.files.parquet).
OURS = {"item_id", "start", "freq", "target"}


def load_own(
    path: Path,
    *,
    name: str,
    columns: Columns = UNNAMED,
    domain: str = "",
    items: str | None = None,
    min_length: int = MIN_LENGTH,
    sample: tuple[int, int] | None = None,
) -> LoadedSeries:
    """Read the usable series of a file, or of all files of a folder, in their order.

    Parquet with the columns item_id, start, freq, target is read as the pipeline reads it. Any other table
    has one row per time, in one of two layouts:

    - long: a column of ids and a column of values, named by `columns`, or unique_id or item_id and y or target.
    - wide: each numeric column is one series.

    A column of times orders the rows and gives the frequency, which must be the same for all series. A time
    that is missing between regular times becomes a missing value of each series. A column that counts rows
    (year, index, step) is left out.

    The notes list which columns were read in which role, which were not read, and how many series were
    sampled.

    name: name of the data set. columns: columns that the user names. domain, items, min_length, sample: as in
    `load_parquet`. Raises DataError also for a CSV without a header, a table whose columns could be read in
    two ways, and series of several frequencies.
    """
    series_of_files: list[Series] = []
    skipped: list[Skip] = []
    missing: dict[str, int] = {}
    notes: list[str] = []
    for file in list_files(path):
        series, unusable, file_notes = _read_file(file, name, columns)
        notes += file_notes
        prefix = f"{file.name.partition('.')[0]}:" if path.is_dir() else ""
        series_of_files += [
            dataclasses.replace(item, series=prefix + item.series, domain=domain, season=columns.season)
            for item, _ in series
        ]
        missing |= {prefix + item.series: n for item, n in series if n}
        skipped += [Skip(prefix + skip.series, skip.reason) for skip in unusable]
    if items is not None:
        matches = match_ids([item.series for item in series_of_files], items, path)
        series_of_files = [item for item, is_match in zip(series_of_files, matches, strict=True) if is_match]
    selected = select(_with_common_freq(series_of_files, path), min_length=min_length, sample=sample)
    missing = {item.series: missing[item.series] for item in selected.series if item.series in missing}
    if len(selected.series) < selected.available:
        notes.append(
            f"{path}: {len(selected.series)} of {selected.available} series, a seeded sample; --max-series takes more"
        )
    return LoadedSeries(selected.series, skipped + selected.skipped, selected.available, missing, notes)


def load_frame(
    frame: pd.DataFrame,
    *,
    name: str,
    columns: Columns = UNNAMED,
    min_length: int = MIN_LENGTH,
    sample: tuple[int, int] | None = None,
) -> LoadedSeries:
    """Read the usable series of a table with one row per time, in the layouts of `load_own`.

    Raises DataError, naming the column, for a table that is not in one of these layouts.
    """
    pairs, notes = _read_frame(frame, Path("DataFrame"), name, columns)
    seasonal = (dataclasses.replace(item, season=columns.season) for item, _ in pairs)
    selected = select(seasonal, min_length=min_length, sample=sample)
    names = {item.series for item in selected.series}
    missing = {item.series: n for item, n in pairs if n and item.series in names}
    return LoadedSeries(selected.series, selected.skipped, selected.available, missing, notes)


def list_files(path: Path) -> list[Path]:
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


def _read_file(path: Path, name: str, columns: Columns) -> tuple[list[tuple[Series, int]], list[Skip], list[str]]:
    """Read one file.

    Returns pairs of a series and its number of missing times, the series that the pipeline's reader finds
    unusable, and notes for the user.
    """
    if not path.name.endswith(SUFFIXES):
        raise DataError(f"{path}: expected a file that ends in {', '.join(SUFFIXES)}; convert it to one")
    if path.suffix != ".parquet":
        series, notes = _read_frame(read_csv(path, columns), path, name, columns)
        return series, [], notes
    try:
        if set(pq.read_schema(path).names) >= OURS and dataclasses.replace(columns, season=None) == UNNAMED:
            loaded = load_parquet(path, dataset=name, min_length=1)
            return [(item, 0) for item in loaded.series], loaded.skipped, []
        check_room(numbers_of(path), path)
        frame = pq.ParquetFile(path).read().to_pandas()
    except DAMAGED as error:
        raise DataError(f"{path}: expected a Parquet file, got {_short(error)}") from error
    series, notes = _read_frame(frame, path, name, columns)
    return series, [], notes


def _read_frame(
    frame: pd.DataFrame, path: Path, name: str, columns: Columns
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
    roles = assign_roles(frame, columns, str(path))
    note = _columns_note(frame, path, roles)
    times = None
    if roles.time is not None:
        location = f"{path}, column {roles.time!r}"
        times = parse_times(frame[roles.time], columns.time_format, location).sort_values(kind="stable")
        frame = frame.loc[times.index]
    if roles.id is not None and (n := int(frame[roles.id].isna().sum())):
        raise DataError(f"{path}, column {roles.id!r}: expected one id per row, got {n} rows without an id")
    return list(_series(frame, path, name, roles, times)), [note]


def _series(
    frame: pd.DataFrame, path: Path, name: str, roles: Roles, times: pd.Series | None
) -> Iterator[tuple[Series, int]]:
    """Yield one series per column and id, in the order of times, with its number of missing times."""
    ids = None if roles.id is None else frame[roles.id]
    clocks = {} if times is None or times.empty else _clocks(times, ids, path)
    parts: Iterable[tuple[Any, pd.DataFrame]] = [(None, frame)] if ids is None else frame.groupby(ids, sort=False)
    for item, rows in parts:
        clock = clocks.get(item, _Clock())
        for column in roles.values:
            label = column if item is None else str(item) if len(roles.values) == 1 else f"{item}:{column}"
            values = clock.to_grid(rows[column].to_numpy(dtype=np.float32, na_value=np.nan))
            yield (
                Series(name, label, values, freq=clock.freq, start=clock.start, provenance=f"file {path.name}"),
                clock.grid.missing if clock.grid else 0,
            )


def _columns_note(frame: pd.DataFrame, path: Path, roles: Roles) -> str:
    """Write the note on which columns were read as times, ids and values, and which were not read."""
    parts = [f"{role} from {name!r}" for role, name in (("times", roles.time), ("ids", roles.id)) if name is not None]
    if roles.id is None:
        parts.append(f"a series from each of {len(roles.values)} of {frame.shape[1]} columns ({join(roles.values)})")
    else:
        parts.append(f"values from {join(roles.values)}")
    unread = [name for name in frame.columns if name not in (*roles.values, roles.time, roles.id)]
    return f"{path}: {', '.join(parts)}" + (f"; not read: {join(unread)}" if unread else "")


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
    if (bad := times.isna() | times.duplicated()).any():
        time, row = times[bad].iloc[0], times.index[bad][0] + 1
        problem = "has none" if pd.isna(time) else f"has {time:%Y-%m-%d %H:%M:%S} again"
        raise DataError(
            f"{path}, column {times.name!r}: expected one time per row of each series, but row {row} below the header "
            f"{problem}; name the column of ids with --id, or correct the row"
        )
    return pd.DatetimeIndex(times)


def _short(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"

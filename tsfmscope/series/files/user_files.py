"""Reader of users' CSV and Parquet files: one row per value (long) or one column per series (wide)."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from pandas.api import types

from tsfmscope.errors import DataError
from tsfmscope.files import check_regular
from tsfmscope.series.files.csv_table import read_csv
from tsfmscope.series.files.frames import UNNAMED, Columns, Roles, assign_roles, has_fractions, join, make_plain
from tsfmscope.series.files.sources import (
    DAMAGED,
    MIN_LENGTH,
    LoadedSeries,
    check_room,
    load_parquet,
    match_ids,
    numbers_of,
    select,
    shorten,
)
from tsfmscope.series.files.times import FREQ_STEPS, Grid, fit_freq, frequency, grid, is_repeated, localize, read_times
from tsfmscope.series.types import Series, Skip

# Series with their numbers of missing times.
Pairs = list[tuple[Series, int]]
SUFFIXES = (".csv", ".tsv", ".csv.gz", ".parquet")
# Columns of the platform's own layout with one row per series (see tsfmscope.series.files.sources).
OURS = {"item_id", "start", "freq", "target"}
# Largest number of frequencies of which one may be common to all series of a table.
CANDIDATES = 5


def load_own(
    path: Path,
    *,
    name: str,
    columns: Columns = UNNAMED,
    domain: str = "",
    items: str | None = None,
    min_length: int | None = MIN_LENGTH,
    sample: tuple[int, int] | None = None,
) -> LoadedSeries:
    """Read the usable series of a file, or of all files of a folder, in their order.

    Parquet with the columns item_id, start, freq, target is read as the pipeline reads it. Any other table
    has one row per time, in one of two layouts:

    - long: columns of ids and a column of values, named by `columns`, or unique_id or item_id and y or target.
    - wide: each numeric column is one series.

    A table whose header contains dates is transposed. A column of times orders the rows and gives the frequency, which
    must be the same for all usable series. A time that is missing between regular times becomes a missing value of
    each series. A column that counts rows (year, index, step) is left out.

    The notes list which columns were read in which role, and which were not read.

    name: name of the data set. columns: columns that the user names. domain, items: as in `load_parquet`.
    min_length, sample: as in `select`. Raises DataError also for a CSV without a header, a table whose columns could
    be read in two ways, and series of several frequencies.
    """
    pairs: Pairs = []
    skipped: list[Skip] = []
    notes: list[str] = []
    for file in list_files(path):
        series, unusable, file_notes = _read_file(file, name, columns)
        notes += file_notes
        prefix = f"{file.name.partition('.')[0]}:" if path.is_dir() else ""
        pairs += [(dataclasses.replace(item, series=prefix + item.series, domain=domain), n) for item, n in series]
        skipped += [Skip(prefix + skip.series, skip.reason) for skip in unusable]
    if items is not None:
        matches = match_ids([item.series for item, _ in pairs], items, path)
        pairs = [pair for pair, is_match in zip(pairs, matches, strict=True) if is_match]
    selected = _select(pairs, path, columns.season, min_length, sample)
    return dataclasses.replace(selected, skipped=skipped + selected.skipped, notes=notes)


def load_frame(
    frame: pd.DataFrame,
    *,
    name: str,
    columns: Columns = UNNAMED,
    min_length: int | None = MIN_LENGTH,
    sample: tuple[int, int] | None = None,
) -> LoadedSeries:
    """Read the usable series of a table with one row per time, in the layouts of `load_own`.

    Raises DataError, naming the column, for a table that is not in one of these layouts.
    """
    path = Path("DataFrame")
    pairs, notes = _read_frame(frame, path, name, columns)
    return dataclasses.replace(_select(pairs, path, columns.season, min_length, sample), notes=notes)


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


def _select(
    pairs: Pairs, path: Path, season: int | None, min_length: int | None, sample: tuple[int, int] | None
) -> LoadedSeries:
    """Return the usable series, all of one frequency, and the skipped ones. Raises DataError for several frequencies.

    A series with gaps has no frequency of its own, and that of a short one does not count. Weeks that begin on several
    days are one frequency, and so are years and quarters of several months.
    """
    usable = select((dataclasses.replace(item, season=season) for item, _ in pairs), min_length=min_length)
    long = [item for item in usable.series if len(item.values) >= MIN_LENGTH] or usable.series
    freqs = Counter(item.freq for item in long if item.freq)
    if len({freq.partition("-")[0] for freq in freqs}) > 1:
        raise DataError(
            f"{path}: series of several frequencies, {', '.join(sorted(freqs))}; use the series of one frequency at a "
            "time"
        )
    common = freqs.most_common(1)[0][0] if freqs else ""
    kinds = {"", common.partition("-")[0]}
    same = [dataclasses.replace(item, freq=common) for item in usable.series if item.freq.partition("-")[0] in kinds]
    other = [
        Skip(item.series, f"under {MIN_LENGTH} steps, of another frequency")
        for item in usable.series
        if item.freq.partition("-")[0] not in kinds
    ]
    selected = select(same, min_length=min_length, sample=sample)
    names = {item.series for item in selected.series}
    missing = {item.series: n for item, n in pairs if n and item.series in names}
    return dataclasses.replace(selected, skipped=usable.skipped + other, missing=missing)


def _read_file(path: Path, name: str, columns: Columns) -> tuple[Pairs, list[Skip], list[str]]:
    """Return the series of a file, those that the pipeline's reader finds unusable, and notes for the user."""
    if not path.name.endswith(SUFFIXES):
        raise DataError(f"{path}: expected a file that ends in {', '.join(SUFFIXES)}; convert it to one")
    if path.suffix != ".parquet":
        frame, csv_notes = read_csv(path, columns)
        series, notes = _read_frame(frame, path, name, columns)
        return series, [], [*csv_notes, *notes]
    try:
        names = set(pq.read_schema(path).names)
        numbers = numbers_of(path)
    except DAMAGED as error:
        raise DataError(f"{path}: expected a Parquet file, got {shorten(error)}") from error
    if names >= OURS and dataclasses.replace(columns, season=None) == UNNAMED:
        loaded = select(load_parquet(path, dataset=name), min_length=None)
        return [(item, 0) for item in loaded.series], loaded.skipped, []
    check_room(numbers, path)
    try:
        frame = _to_pandas(pq.ParquetFile(path).read())
    except DAMAGED as error:
        raise DataError(f"{path}: expected a Parquet file, got {shorten(error)}") from error
    series, notes = _read_frame(frame, path, name, columns)
    return series, [], notes


def _to_pandas(table: pa.Table) -> pd.DataFrame:
    """Return a table with the index that its pandas metadata names, or without one if the metadata does not fit."""
    try:
        return pd.DataFrame(table.to_pandas(date_as_object=False))
    # The metadata is text of other programs.
    except (*DAMAGED, TypeError, AttributeError):
        plain: pd.DataFrame = table.replace_schema_metadata().to_pandas(date_as_object=False)
        unnamed = [name for name in plain if str(name).startswith("__index_level_")]
        return plain.drop(columns=[name for name in unnamed if pd.api.types.is_numeric_dtype(plain[name])])


def _read_frame(frame: pd.DataFrame, path: Path, name: str, columns: Columns) -> tuple[Pairs, list[str]]:
    """Return the series of a table with one row per time, and notes for the user."""
    frame, columns = make_plain(frame, columns, str(path))
    roles = assign_roles(frame, columns, str(path))
    notes = [_columns_note(frame, path, roles)]
    ids = _ids(frame, path, roles)
    times = None
    if roles.times:
        times = read_times(frame, roles.times, columns.time_format, columns.tz, str(path)).rename(roles.times[0])
        times, zone = localize(times, ids, columns.tz, f"{path}, column {times.name!r}")
        if zone:
            notes.append(f"{path}: the hour that occurs twice is read as the change of clocks in {zone}; else set --tz")
        # Series stay in the order of the table.
        position = 0 if ids is None else pd.factorize(ids)[0]
        order = pd.DataFrame({"series": position, "time": times}).sort_values(["series", "time"]).index
        times, frame, ids = times.loc[order], frame.loc[order], None if ids is None else ids.loc[order]
    return list(_series(frame, path, name, roles, ids, times)), notes


def _ids(frame: pd.DataFrame, path: Path, roles: Roles) -> pd.Series | None:
    """Return the id of each row, joined with "/" where ids have several columns. Raises DataError if one is missing."""
    for column in roles.ids:
        if n := int(frame[column].isna().sum()):
            raise DataError(f"{path}, column {column!r}: expected one id per row, got {n} rows without an id")
    if not roles.ids:
        return None
    whole = [name for name in roles.ids if types.is_float_dtype(frame[name]) and not has_fractions(frame[name])]
    frame = frame.astype(dict.fromkeys(whole, "Int64"))
    ids: pd.Series = frame[roles.ids[0]].astype(str)
    for column in roles.ids[1:]:
        ids = ids + "/" + frame[column].astype(str)
    if ids.nunique() < len(frame[roles.ids].drop_duplicates()):
        raise DataError(f"{path}: ids of the columns {join(roles.ids)} are equal when joined with '/'; rename them")
    return ids


def _series(
    frame: pd.DataFrame, path: Path, name: str, roles: Roles, ids: pd.Series | None, times: pd.Series | None
) -> Iterator[tuple[Series, int]]:
    """Yield one series per column and id, in the order of times, with its number of missing times."""
    clocks = {} if times is None or times.empty else _clocks(times, ids, path)
    parts: Iterable[tuple[Any, pd.DataFrame]] = [(None, frame)] if ids is None else frame.groupby(ids, sort=False)
    for item, rows in parts:
        clock = clocks.get(item, _Clock())
        for column in roles.values:
            label = column if item is None else str(item) if len(roles.values) == 1 else f"{item}:{column}"
            values = rows[column].to_numpy(dtype=np.float64, na_value=np.nan)
            if clock.grid is not None:
                # NaN where the time is missing.
                on_grid = np.full(clock.grid.steps, np.nan)
                on_grid[clock.grid.at] = values
                values = on_grid
            yield (
                Series(
                    name, label, values, freq=clock.freq, start=clock.start, provenance=f"file {path.name}", tz=clock.tz
                ),
                clock.grid.missing if clock.grid else 0,
            )


def _columns_note(frame: pd.DataFrame, path: Path, roles: Roles) -> str:
    """Write the note on which columns were read as times, ids and values, and which were not read."""
    parts = [f"{role} from {join(names)}" for role, names in (("times", roles.times), ("ids", roles.ids)) if names]
    if not roles.ids:
        parts.append(f"a series from each of {len(roles.values)} of {frame.shape[1]} columns ({join(roles.values)})")
    else:
        parts.append(f"values from {join(roles.values)}")
    unread = [name for name in frame.columns if name not in (*roles.values, *roles.times, *roles.ids)]
    return f"{path}: {', '.join(parts)}" + (f"; not read: {join(unread)}" if unread else "")


@dataclasses.dataclass(frozen=True)
class _Clock:
    """Times of a series' values.

    start: local time of the first value, without time zone; grid: the regular times, where some of them are
    missing; tz: name of the time zone, if the times have one.
    """

    start: datetime | None = None
    freq: str = ""
    grid: Grid | None = None
    tz: str | None = None


def _clocks(times: pd.Series, ids: pd.Series | None, path: Path) -> dict[Any, _Clock]:
    """Return the clock of each id (key None for a table without ids).

    times: ascending. Raises DataError where a time of a series is missing or occurs twice.
    """
    parts: Iterable[tuple[Any, pd.Series]] = [(None, times)] if ids is None else times.groupby(ids, sort=False)
    _check_times(times, ids, path)
    times_by_id = {item: pd.DatetimeIndex(part) for item, part in parts}
    # Most series of a table have the same times, and only different ones are worth a look.
    keys = {item: part.asi8.tobytes() for item, part in times_by_id.items()}
    distinct = {keys[item]: part for item, part in times_by_id.items()}
    freq_of = {key: frequency(part) for key, part in distinct.items()}
    freqs = {item: freq_of[key] for item, key in keys.items()}
    known_freqs = sorted(set(freqs.values()) - {""})
    common = _common_freq(times_by_id, freqs)
    clocks: dict[bytes, _Clock] = {}
    for item, part in times_by_id.items():
        if keys[item] in clocks:
            continue
        freq = freqs[item]
        fit = fit_freq(part, common) if freq not in ("", common) else None
        if fit is None and not (freq and len(part) <= FREQ_STEPS):
            fit = grid(part, [freq] if freq else known_freqs)
        start = part[0].tz_localize(None).to_pydatetime()
        clocks[keys[item]] = _Clock(start, fit.freq if fit else freq, fit, None if part.tz is None else str(part.tz))
    return {item: clocks[key] for item, key in keys.items()}


def _common_freq(times_by_id: dict[Any, pd.DatetimeIndex], freqs: dict[Any, str]) -> str:
    """Return the frequency whose grids contain most times; "" if no series has one.

    A few times of a series may by chance be regular at a multiple of the frequency of the others.
    """
    counts: Counter[str] = Counter()
    for item, part in times_by_id.items():
        counts[freqs[item]] += len(part)
    known = [freq for freq, _ in counts.most_common() if freq][:CANDIDATES]
    if len(known) < 2:
        return known[0] if known else ""
    fitting = {
        freq: sum(len(part) for item, part in times_by_id.items() if freqs[item] == freq or fit_freq(part, freq))
        for freq in known
    }
    return max(known, key=lambda freq: fitting[freq])


def _check_times(times: pd.Series, ids: pd.Series | None, path: Path) -> None:
    """Raise DataError where a time of a series is missing or occurs twice."""
    if (bad := times.isna() | is_repeated(times, ids)).any():
        time, row = times[bad].iloc[0], times.index[bad][0] + 1
        problem = "has none" if pd.isna(time) else f"has {time:%Y-%m-%d %H:%M:%S} again"
        raise DataError(
            f"{path}, column {times.name!r}: expected one time per row of each series, but row {row} below the header "
            f"{problem}; name the columns of ids with --id, or those of a date and a time of day with --time, or "
            "correct the row"
        )

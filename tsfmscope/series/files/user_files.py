"""Reader of users' tables in files and folders: one row per value (long), column (wide) or row per series."""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timezone
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from pandas.api import types

from tsfmscope.errors import DataError
from tsfmscope.files import check_regular
from tsfmscope.series.calendar import gluonts_seasonality, rule_of
from tsfmscope.series.files.csv_table import read_csv, read_excel
from tsfmscope.series.files.frames import IDS, TIMES, Roles, assign_roles, has_fractions, is_list, join, make_plain
from tsfmscope.series.files.options import AS_FOUND, Reading
from tsfmscope.series.files.sources import (
    DAMAGED,
    MIN_LENGTH,
    LoadedSeries,
    check_room,
    infer_freq,
    load_parquet,
    match_ids,
    numbers_of,
    select,
    shorten,
)
from tsfmscope.series.files.times import (
    FREQ_STEPS,
    Grid,
    fit_freq,
    frequency,
    grid,
    is_clock,
    is_repeated,
    localize,
    read_times,
    stated_grid,
    step_times,
)
from tsfmscope.series.tables import is_number_list
from tsfmscope.series.types import Series, Skip

# Series with their numbers of missing times.
Pairs = list[tuple[Series, int]]
SUFFIXES = (".csv", ".tsv", ".csv.gz", ".parquet", ".xlsx")
# Columns of the platform's own layout with one row per series (see tsfmscope.series.files.sources).
OURS = {"item_id", "start", "freq", "target"}
# Beginnings of the names of files that programs add to others, such as the lock files of Excel.
HIDDEN = (".", "_", "~$")
# Name of a file that is a part of a table, and of a folder of such files.
PART = re.compile(r"part[-_.].*|.*-\d{5}-of-\d{5}\..*", re.I)
PARTITION = re.compile(r"([^=]+)=(.*)")
# Names of folders by which programs divide tables in time; the tables have the times too.
TIME_PARTITIONS = {"year", "quarter", "month", "week", "day", "dt", "hour", *TIMES}
# Largest number of frequencies of which one may be common to all series of a table.
CANDIDATES = 5


def load_own(
    path: Path,
    *,
    name: str,
    reading: Reading = AS_FOUND,
    domain: str = "",
    items: str | None = None,
    min_length: int | None = MIN_LENGTH,
    sample: tuple[int, int] | None = None,
) -> LoadedSeries:
    """Read the usable series of a file, or of all files of a folder, in their order.

    Parquet with the columns item_id, start, freq, target is read as the pipeline reads it. Any other table has one of
    these layouts:

    - long: one row per time; columns of ids and a column of values, named by `reading`, or unique_id or item_id and y
      or target.
    - wide: one row per time; each numeric column is one series.
    - nested: one row per series; cells of times and values are lists.

    A table whose header contains dates is transposed. A column of times orders the rows and gives the frequency, which
    must be the same for all usable series. A time that is missing between regular times becomes a missing value of
    each series. A column that counts rows (year, index, step) is left out.

    The notes list which columns were read in which role, and which were not read.

    name: name of the data set. domain, items: as in `load_parquet`. min_length, sample: as in `select`. Raises
    DataError also for a CSV without a header, a table that could be read in two ways, and series of several
    frequencies.
    """
    pairs: Pairs = []
    skipped: list[Skip] = []
    notes: list[str] = []
    tables = list_tables(path, reading.one_table)
    if len(tables) > 1 and reading.one_table is None:
        notes.append(f"{path}: {len(tables)} tables; ids begin with the name of the file; --one-table reads one table")
    read = {file for files in tables.values() for file in files}
    if path.is_dir() and (unread := [file.name for file in sorted(path.iterdir()) if _is_unread(file, read)]):
        notes.append(f"{path}: not read: {join(unread)}")
    for label, files in tables.items():
        series, unusable, file_notes = _read_table(files, path, name, reading)
        notes += file_notes
        prefix = f"{label}:" if label else ""
        pairs += [(dataclasses.replace(item, series=prefix + item.series, domain=domain), n) for item, n in series]
        skipped += [Skip(prefix + skip.series, skip.reason) for skip in unusable]
    if items is not None:
        matches = match_ids([item.series for item, _ in pairs], items, path)
        pairs = [pair for pair, is_match in zip(pairs, matches, strict=True) if is_match]
    selected = _select(pairs, path, reading, min_length, sample)
    return dataclasses.replace(selected, skipped=skipped + selected.skipped, notes=notes)


def load_frame(
    frame: pd.DataFrame,
    *,
    name: str,
    reading: Reading = AS_FOUND,
    min_length: int | None = MIN_LENGTH,
    sample: tuple[int, int] | None = None,
) -> LoadedSeries:
    """Read the usable series of a table in the layouts of `load_own`.

    Raises DataError, naming the column, for a table that is not in one of these layouts.
    """
    path = Path("DataFrame")
    pairs, notes = _read_frame(frame, path, name, reading)
    return dataclasses.replace(_select(pairs, path, reading, min_length, sample), notes=notes)


def list_tables(path: Path, one_table: bool | None = None) -> dict[str, list[Path]]:
    """Return the files of each table of a folder, by the table's name.

    The name of a file, and of the only table, is "". one_table: as in `Reading`. Raises DataError if there is no
    readable file.
    """
    files = list_files(path)
    if one_table is None:
        one_table = all(PART.fullmatch(file.name) or file.parent != path for file in files)
    if one_table or not path.is_dir():
        return {"": files}
    names = [file.with_name(file.name.partition(".")[0]).relative_to(path).as_posix() for file in files]
    if len(set(names)) < len(names):
        names = [file.relative_to(path).as_posix() for file in files]
    return {name: [file] for name, file in zip(names, files, strict=True)}


def _is_table(file: Path) -> bool:
    return file.name.lower().endswith(SUFFIXES)


def _is_unread(entry: Path, read: Collection[Path]) -> bool:
    """Return whether an entry of a folder is neither read, nor one of those that programs add to their files."""
    return not entry.name.startswith(HIDDEN) and not any(file == entry or entry in file.parents for file in read)


def list_files(path: Path) -> list[Path]:
    """Return the file, or the readable files of a folder by name; DataError if there is none."""
    if not path.is_dir():
        try:
            check_regular(path)
        except OSError as error:
            raise DataError(f"{path}: {error.strerror}; name a file or a folder of files") from error
        return [path]
    entries = [path]
    for entry in entries:
        if entry is path or (entry.is_dir() and PARTITION.fullmatch(entry.name)):
            entries += sorted(child for child in entry.iterdir() if not child.name.startswith(HIDDEN))
    # Spark writes empty parts.
    files = sorted(entry for entry in entries if entry.is_file() and _is_table(entry) and entry.stat().st_size)
    if not files:
        raise DataError(f"{path}: the folder contains no file of {', '.join(SUFFIXES)}; add one, or name a file")
    return files


def with_options(series: Series, reading: Reading) -> Series:
    """Return a series with the season, frequency and zone that are stated, and with its missing steps filled.

    Raises DataError if the series has another frequency.
    """
    freq, stated = series.freq, reading.freq or ""
    if freq and stated and _length(freq) != _length(stated):
        raise DataError(
            f"{series.series}: its data state the frequency {freq}; leave out --freq {stated}, or resample it"
        )
    values = series.values
    if reading.fill != "nan" and (missing := np.isnan(values)).any() and not missing.all():
        missing[: int(np.argmin(missing))] = False
        at = np.maximum.accumulate(np.where(missing, 0, np.arange(len(values))))
        values = np.where(missing, 0 if reading.fill == "0" else values[at], values).astype(values.dtype)
    return dataclasses.replace(
        series, values=values, season=reading.season, freq=freq or stated, tz=series.tz or reading.tz
    )


def _length(freq: str) -> tuple[int, str]:
    """Return the length of a step in nanoseconds, or in calendar units without their anchor: W-SUN is W-MON."""
    n, nanoseconds, period = rule_of(freq)
    return n * nanoseconds or n, period.partition("-")[0]


def _select(
    pairs: Pairs, path: Path, reading: Reading, min_length: int | None, sample: tuple[int, int] | None
) -> LoadedSeries:
    """Return the usable series, all of one frequency, and the skipped ones. Raises DataError for several frequencies.

    A series with gaps has no frequency of its own, and that of a short one does not count. Weeks that begin on several
    days are one frequency, and so are years and quarters of several months.
    """
    usable = select((with_options(item, reading) for item, _ in pairs), min_length=min_length)
    long = [item for item in usable.series if len(item.values) >= MIN_LENGTH] or usable.series
    freqs = Counter(item.freq for item in long if item.freq)
    if len({freq.partition("-")[0] for freq in freqs}) > 1:
        raise DataError(
            f"{path}: series of several frequencies, {', '.join(sorted(freqs))}; use the series of one frequency at a "
            "time, or give all of them one with --freq, and with --duplicates how its values are joined"
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


def _read_table(files: Sequence[Path], root: Path, name: str, reading: Reading) -> tuple[Pairs, list[Skip], list[str]]:
    """Return the series of a table in one or several files, those without use, and notes.

    root: folder of the files; the names of folders in it are columns of the table, as in `store=7`.
    """
    pairs: Pairs = []
    skipped: list[Skip] = []
    notes: list[str] = []
    frames: list[pd.DataFrame] = []
    keys: list[str] = []
    for file in files:
        content, file_notes = _read_file(file, name, reading)
        notes += file_notes
        if isinstance(content, LoadedSeries):
            pairs += [(item, 0) for item in content.series]
            skipped += content.skipped
            continue
        folders = file.relative_to(root).parts[:-1] if file != root else ()
        for key, value in (match.groups() for folder in folders if (match := PARTITION.fullmatch(folder))):
            keys += [key] if key not in keys else []
            if key not in content:
                content[key] = unquote(value)
        frames.append(content)
    if repeated := [one for one, n in Counter(item.series for item, _ in pairs).items() if n > 1]:
        raise DataError(f"{root}: series {repeated[0]!r} is in several files; rename it in one, or set --no-one-table")
    if not frames:
        return pairs, skipped, notes
    path = files[0] if len(files) == 1 else root
    series, frame_notes = _read_frame(_concatenate(frames, files, root), path, name, reading, keys)
    parts = [f"{root}: {len(files)} files read as one table; --no-one-table reads them apart"] if len(files) > 1 else []
    return pairs + series, skipped, [*parts, *notes, *frame_notes]


def _concatenate(frames: Sequence[pd.DataFrame], files: Sequence[Path], root: Path) -> pd.DataFrame:
    """Return one table of several parts. Raises DataError if they have different columns."""
    if len(frames) == 1:
        return frames[0]
    for frame, file in zip(frames, files, strict=False):
        if different := set(frame) ^ set(frames[0]):
            raise DataError(
                f"{root}: expected the same columns in all files of one table, but only one of {files[0].name} and "
                f"{file.name} has {join(sorted(map(str, different)))}; set --no-one-table, or correct the file"
            )
    for column in frames[0]:
        # A part may contain only ids that look like numbers.
        kinds = {types.is_numeric_dtype(frame[column]) for frame in frames if frame[column].notna().any()}
        if len(kinds) > 1:
            for frame in frames:
                frame[column] = frame[column].where(frame[column].isna(), frame[column].astype(str))
    return pd.concat(frames)


def _read_file(path: Path, name: str, reading: Reading) -> tuple[pd.DataFrame | LoadedSeries, list[str]]:
    """Return the table or, if the file is in the pipeline's own layout, the series of a file, and notes."""
    if reading.sheet is not None and path.suffix.lower() != ".xlsx":
        raise DataError(f"{path}: --sheet {reading.sheet!r}: expected an Excel file; leave it out")
    if not _is_table(path):
        raise DataError(f"{path}: expected a file that ends in {', '.join(SUFFIXES)}; convert it to one")
    if path.suffix.lower() == ".xlsx":
        return read_excel(path, reading)
    if path.suffix.lower() != ".parquet":
        return read_csv(path, reading)
    try:
        schema = pq.read_schema(path)
        numbers = numbers_of(path)
    except DAMAGED as error:
        raise DataError(f"{path}: expected a Parquet file, got {shorten(error)}") from error
    lists = {field.name for field in schema if is_number_list(field.type)}
    is_named = reading.times or reading.ids or reading.values or reading.time_format
    if set(schema.names) >= OURS and "target" in lists and not is_named:
        return select(load_parquet(path, dataset=name), min_length=None), []
    check_room(numbers, path)
    try:
        return _to_pandas(pq.ParquetFile(path).read()), []
    except DAMAGED as error:
        raise DataError(f"{path}: expected a Parquet file, got {shorten(error)}") from error


def _to_pandas(table: pa.Table) -> pd.DataFrame:
    """Return a table with the index that its pandas metadata names, or without one if the metadata does not fit."""
    try:
        return pd.DataFrame(table.to_pandas(date_as_object=False))
    # The metadata is text of other programs.
    except (*DAMAGED, TypeError, AttributeError):
        plain: pd.DataFrame = table.replace_schema_metadata().to_pandas(date_as_object=False)
        unnamed = [name for name in plain if str(name).startswith("__index_level_")]
        return plain.drop(columns=[name for name in unnamed if pd.api.types.is_numeric_dtype(plain[name])])


def _read_frame(
    frame: pd.DataFrame, path: Path, name: str, reading: Reading, partitions: Sequence[str] = ()
) -> tuple[Pairs, list[str]]:
    """Return the series of a table, and notes for the user. partitions: columns that come from names of folders."""
    if "start" in frame and "target" in frame and is_list(frame["target"]) and not (reading.values or reading.times):
        return [(item, 0) for item in row_series(frame.to_dict("records"), name, str(path), reading)], []
    frame, reading = make_plain(frame, reading, str(path))
    roles, reading = _roles(frame, path, reading, partitions)
    notes = [_columns_note(frame, path, roles)]
    ids = _ids(frame, path, roles)
    times = None
    if roles.times:
        times = read_times(frame, roles.times, reading.time_format, reading.tz, str(path)).rename(roles.times[0])
        seeks_zone = reading.duplicates == "error"
        location = f"{path}, column {times.name!r}"
        if isinstance(times.dt.tz, timezone) and times.dt.tz != UTC and reading.tz is None:
            notes.append(f"{path}: times are read in the offset {times.dt.tz} of the first; else set --tz")
        times, zone = localize(times, ids, reading.tz, location, seeks_zone=seeks_zone)
        if zone:
            notes.append(f"{path}: the hour that occurs twice is read as the change of clocks in {zone}; else set --tz")
        # Series stay in the order of the table.
        position = 0 if ids is None else pd.factorize(ids)[0]
        order = pd.DataFrame({"series": position, "time": times}).sort_values(["series", "time"]).index
        times, frame, ids = times.loc[order], frame.loc[order], None if ids is None else ids.loc[order]
        _check_times(times, ids, path, reading.duplicates)
        if reading.freq and not _are_on_grid(times, ids, reading.freq):
            times = step_times(times, reading.freq, location)
            notes.append(f"{path}: times are moved to the steps of {reading.freq}, as pandas' resample does")
            _check_times(times, ids, path, reading.duplicates)
        if (n_repeated := int(is_repeated(times, ids).sum())) > 0:
            frame, ids, times = _merge(frame, ids, times, roles.values, reading.duplicates)
            shared = f"{n_repeated} rows share a time with another row of their series"
            notes.append(f"{path}: {shared}; the value is the {reading.duplicates} of these rows")
    return list(_series(frame, path, name, roles, ids, times, reading.freq)), notes


def _roles(frame: pd.DataFrame, path: Path, reading: Reading, partitions: Sequence[str]) -> tuple[Roles, Reading]:
    """Return the roles of the columns of a table, and the options with those of its partitions.

    Partitions that no option names are ids where the other columns of ids do not tell series apart, but for those in
    time, which are times only if the table has no others.
    """
    named = (*reading.times, *reading.ids, *reading.values)
    free = [key for key in partitions if key not in named and key.lower() not in IDS]
    own = frame.drop(columns=free)
    if not reading.times and (dates := _dates(free)):
        times = assign_roles(own, reading, str(path)).times
        # A time of day may stand in the table, below folders of days.
        if all(is_clock(frame[time]) for time in times):
            free = [key for key in free if key not in dates]
            reading = reading.model_copy(update={"time": [*dates, *times]})
            own = frame.drop(columns=free)
    roles = assign_roles(own, reading, str(path))
    keys = [key for key in free if key.lower() not in TIME_PARTITIONS]
    if not reading.ids:
        if roles.ids:
            keys = [key for key in keys if frame.groupby(roles.ids, sort=False)[key].nunique().max() > 1]
        roles = roles._replace(ids=[*keys, *roles.ids])
    return roles, reading


def _dates(partitions: Sequence[str]) -> list[str]:
    """Return the partitions that make a date: one of it, or year, month and day."""
    lower = {key.lower(): key for key in partitions}
    if date := next((key for name, key in lower.items() if name in {"dt", *TIMES}), None):
        return [date]
    parts = [name for name in ("year", "month", "day") if name in lower]
    return [lower[name] for name in parts] if parts == ["year", "month", "day"][: len(parts)] else []


def _are_on_grid(times: pd.Series, ids: pd.Series | None, freq: str) -> bool:
    """Return whether the times of every series are a frequency's, without its anchor the same for all."""
    parts = [times] if ids is None else [part for _, part in times.groupby(ids, sort=False)]
    distinct = {part.asi8.tobytes(): part for part in map(pd.DatetimeIndex, parts) if len(part)}
    freqs = set()
    for part in distinct.values():
        if (fit := stated_grid(part.unique(), freq)) is None:
            return False
        freqs.add(fit.freq.partition("-")[0])
    # Ends of months in one series, and beginnings in another, lie on no common grid.
    return len(freqs) < 2


def _merge(
    frame: pd.DataFrame, ids: pd.Series | None, times: pd.Series, values: Sequence[str], duplicates: str
) -> tuple[pd.DataFrame, pd.Series | None, pd.Series]:
    """Return one row per series and time. duplicates: as in `Reading`."""
    is_kept = ~is_repeated(times, ids, keep="last" if duplicates == "last" else "first")
    if duplicates in ("mean", "sum"):
        groups = (~is_repeated(times, ids)).cumsum()
        numbers = pd.DataFrame(
            {name: frame[name].astype("Float64").to_numpy(np.float64, na_value=np.nan) for name in values}
        )
        grouped = numbers.groupby(groups.to_numpy())
        merged = grouped.mean() if duplicates == "mean" else grouped.sum(min_count=1)
        frame = merged.set_axis(times.index[is_kept], axis=0)
    else:
        frame = frame[is_kept]
    return frame, None if ids is None else ids[is_kept], times[is_kept]


def row_series(rows: Iterable[Mapping[Any, Any]], name: str, location: str, reading: Reading) -> list[Series]:
    """Return the series of rows such as GluonTS's: item_id, start, target and, if start is no period, freq.

    A target of several variates [variate, step] is a series each. Raises DataError for a row without numbers, a start
    that is no time, an unknown frequency, and an id that is missing or occurs twice.
    """
    rows = list(rows)
    key = next((key for key in ("item_id", "unique_id", "id") if any(key in row for row in rows)), None)
    labels = [f"series-{number}" for number in range(len(rows))]
    if key is not None:
        table = pd.DataFrame({key: [row.get(key) for row in rows]})
        ids = _ids(table, Path(location), Roles([], [key], []))
        labels = labels if ids is None else ids.to_list()
        if repeated := [label for label, n in Counter(labels).items() if n > 1]:
            raise DataError(f"{location}, column {key!r}: {repeated[0]!r} is the id of several rows; rename one")
    freqs = [row.get("freq") or "" for row in rows]
    starts: list[Any] = [row.get("start") for row in rows]
    for number, start in enumerate(starts):
        if isinstance(start, pd.Period):
            times = pd.period_range(start, periods=4, freq=start.freq).to_timestamp()
            starts[number], freqs[number] = times[0], freqs[number] or infer_freq(times)
    for freq in dict.fromkeys(freqs):
        gluonts_seasonality(freq)
    column = pd.DataFrame({"start": pd.Series(starts).infer_objects()})
    column = column if starts and any(start is not None for start in starts) else column.astype("datetime64[ns]")
    clocks = read_times(column, ["start"], reading.time_format, reading.tz, location)
    zone = reading.tz if clocks.dt.tz is None else str(clocks.dt.tz)
    series = []
    for label, freq, start, row in zip(labels, freqs, clocks.dt.tz_localize(None), rows, strict=True):
        target = row.get("target")
        try:
            parts: list[Any] = [() if target is None else target]
            if len(parts[0]) and isinstance(parts[0][0], list | tuple | np.ndarray):
                parts = list(parts[0])
            values = [np.asarray(part, dtype=np.float64) for part in parts]
        except (TypeError, ValueError, LookupError) as error:
            raise DataError(f"{location}, series {label!r}: expected numbers as its target, got {error}") from error
        if any(part.ndim != 1 for part in values):
            raise DataError(f"{location}, series {label!r}: expected a target [step] or [variate, step], got more axes")
        for variate, part in enumerate(values):
            series.append(
                Series(
                    name,
                    label if len(values) == 1 else f"{label}:{variate}",
                    part,
                    freq=str(freq),
                    start=None if pd.isna(start) else start.to_pydatetime(),
                    provenance=location,
                    tz=zone,
                )
            )
    return series


def _ids(frame: pd.DataFrame, path: Path, roles: Roles) -> pd.Series | None:
    """Return the id of each row, joined with "/" where ids have several columns. Raises DataError if one is missing."""
    for column in roles.ids:
        if n := int(frame[column].isna().sum()):
            raise DataError(
                f"{path}, column {column!r}: expected one id per row, got {n} rows without an id; fill these "
                "cells, also where several are merged"
            )
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
    frame: pd.DataFrame, path: Path, name: str, roles: Roles, ids: pd.Series | None, times: pd.Series | None,
    stated: str | None,
) -> Iterator[tuple[Series, int]]:  # fmt: skip
    """Yield one series per column and id, in the order of times, with its number of missing times.

    stated: frequency that the user states.
    """
    clocks = {} if times is None or times.empty else _clocks(times, ids, stated)
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


def _clocks(times: pd.Series, ids: pd.Series | None, stated: str | None) -> dict[Any, _Clock]:
    """Return the clock of each id (key None for a table without ids). times: ascending, without repeats."""
    parts: Iterable[tuple[Any, pd.Series]] = [(None, times)] if ids is None else times.groupby(ids, sort=False)
    times_by_id = {item: pd.DatetimeIndex(part) for item, part in parts}
    # Most series of a table have the same times, and only different ones are worth a look.
    keys = {item: part.asi8.tobytes() for item, part in times_by_id.items()}
    distinct = {keys[item]: part for item, part in times_by_id.items()}
    if stated:
        fits = {key: stated_grid(part, stated) for key, part in distinct.items()}
        clocks = {key: _clock(part, "", fits[key]) for key, part in distinct.items()}
        return {item: clocks[key] for item, key in keys.items()}
    freq_of = {key: frequency(part) for key, part in distinct.items()}
    freqs = {item: freq_of[key] for item, key in keys.items()}
    known_freqs = sorted(set(freqs.values()) - {""})
    common = _common_freq(times_by_id, freqs)
    clocks = {}
    for key, part in distinct.items():
        freq = freq_of[key]
        fit = fit_freq(part, common) if freq not in ("", common) else None
        if fit is None and not (freq and len(part) <= FREQ_STEPS):
            fit = grid(part, [freq] if freq else known_freqs)
        clocks[key] = _clock(part, freq, fit)
    return {item: clocks[key] for item, key in keys.items()}


def _clock(times: pd.DatetimeIndex, freq: str, fit: Grid | None) -> _Clock:
    start = times[0].tz_localize(None).to_pydatetime()
    return _Clock(start, fit.freq if fit else freq, fit, None if times.tz is None else str(times.tz))


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


def _check_times(times: pd.Series, ids: pd.Series | None, path: Path, duplicates: str) -> None:
    """Raise DataError where a time of a series is missing or, if `duplicates` is error, occurs twice."""
    bad = times.isna()
    if duplicates == "error":
        bad |= is_repeated(times, ids)
    if bad.any():
        time, row = times[bad].iloc[0], times.index[bad][0] + 1
        problem, fix = "has none", "correct the row"
        if not pd.isna(time):
            problem = f"has {time:%Y-%m-%d %H:%M:%S} again"
            fix = "join the values of a time with --duplicates mean, sum, first or last, or correct the row"
        raise DataError(
            f"{path}, column {times.name!r}: expected one time per row of each series, but row {row} below the header "
            f"{problem}; name the columns of ids with --id, or those of a date and a time of day with --time, or {fix}"
        )

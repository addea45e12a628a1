"""Reader of the times of a user's table, and the regular time grid fitted to them.

Absent timestamps of a grid become missing values.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import date, timezone

import numpy as np
import pandas as pd
from jaxtyping import Int64
from pandas.api import types
from pandas.tseries.frequencies import to_offset

from tsfmscope.errors import DataError
from tsfmscope.series.calendar import DAY_NANOSECONDS, rule_of
from tsfmscope.series.files.sources import infer_freq

# A date in another order than that of ISO 8601, with or without a time of day.
DATE = re.compile(r"\d{1,2}([./-])\d{1,2}\1(\d{4}|\d{2})(?: \d{1,2}:\d{2}(:\d{2})?)?")
# A date with the name of its month.
NAMED_MONTH = re.compile(r"\d{1,2}([ ./-])([a-z]{3,9})\1(\d{4}|\d{2})( \d{1,2}:\d{2}(:\d{2})?)?", re.I)
# A quarter, month or week of a year, such as 2024Q1, 2024-M01, 2024-W05 or Q1 2024.
PERIOD = r"(?P<year>\d{4})-?(?P<unit>[QMW])(?P<number>\d{1,2})|Q(?P<quarter>[1-4])[ -](?P<its_year>\d{4})"
# Offset from UTC at the end of a time of day.
OFFSET = r":\d\d(?:[.,]\d+)?\s?(Z|[+-]\d\d(?::?\d\d)?)$"
# Time of day.
CLOCK = re.compile(r"\d{1,2}:\d\d(:\d\d(\.\d+)?)?")
# Unit of numbers since 1970 -> number of digits, for the years 1973 to 2286.
DIGITS = {"s": {9, 10}, "ms": {12, 13}, "us": {15, 16}, "ns": {18, 19}}
# Number of digits of a date that is written as a number -> its format.
NUMBERS = {4: "%Y", 6: "%Y%m", 8: "%Y%m%d", 10: "%Y%m%d%H", 12: "%Y%m%d%H%M", 14: "%Y%m%d%H%M%S"}
# First and last year of a number that is read as a date.
YEARS = (1900, 2100)
# One time zone for each rule by which clocks change.
ZONES = ("Europe/Berlin", "Europe/London", "Europe/Athens", "America/New_York", "Australia/Sydney", "America/Santiago")


def read_times(
    frame: pd.DataFrame, names: list[str], time_format: str | None, tz: str | None, location: str
) -> pd.Series:
    """Return the times of one column, or of several columns, such as a date and a time of day.

    Text without an offset gives times without a time zone, and so does text whose offsets differ if its local times
    of day are all the same. Other text with offsets gives times in the offset of its first row, numbers since 1970
    times in UTC.

    tz: time zone of the result, if the times have one. location: file, for messages. Raises DataError as `parse_times`.
    """
    location = f"{location}, column {' + '.join(map(repr, names))}"
    column = frame[names[0]] if len(names) == 1 else _join(frame, names, is_raw=time_format is not None)
    times = parse_times(column, time_format, location)
    if times.dt.tz is None:
        return times
    if tz is not None:
        return pd.Series(times.dt.tz_convert(_check_zone(tz)))
    if types.is_datetime64_any_dtype(column) or types.is_numeric_dtype(column):
        return times
    delta = pd.to_timedelta(_offsets(column).fillna("Z").map(_offset_minutes), unit="min")
    local: pd.Series = times.dt.tz_localize(None) + delta
    if local.dropna().dt.time.nunique() == 1 and delta.nunique() > 1:
        return local
    return pd.Series(times.dt.tz_convert(timezone(delta.iloc[0].to_pytimedelta()) if len(delta) else "UTC"))


def parse_times(column: pd.Series, time_format: str | None, location: str) -> pd.Series:
    """Return times: those of a column of times, else in UTC or, without an offset, without time zone.

    Text is read in the given format, else as ISO 8601, else with day or month first if only one of them fits
    all cells. Numbers are years, 202401, 20240131, 2024013123, or seconds, milli-, micro- or nanoseconds since 1970.
    An empty cell becomes NaT.

    location: file and column, for messages.

    Raises:
        DataError: a cell is no time, or could be read as two times.
    """
    if types.is_datetime64_any_dtype(column):
        return column
    # Many series have the same times. An error must name the row, so it is found again in the whole column.
    distinct = column.drop_duplicates()
    if 2 * len(distinct) < len(column):
        with contextlib.suppress(DataError):
            parsed = parse_times(distinct, time_format, location)
            return pd.Series(parsed.array[pd.factorize(column, use_na_sentinel=False)[0]], column.index)
    if types.is_numeric_dtype(column):
        whole: pd.Series = column.where(column % 1 == 0).astype("Int64")
        if time_format in DIGITS and not whole.notna().equals(column.notna()):
            return pd.Series(pd.to_datetime(column, unit=time_format, utc=True))  # type: ignore[call-overload]
        is_whole = time_format in DIGITS or (time_format is None and whole.notna().equals(column.notna()))
        if is_whole and (times := _parse_numbers(whole, time_format, location)) is not None:
            return times
        column = column.astype(object).where(whole.isna(), whole.astype("string"))
        formats = [time_format or "%Y%m%d"]
    else:
        column = column.astype("string").str.strip()
        if time_format is None:
            column = column.str.replace(PERIOD, _first_day, regex=True, flags=re.I)
        formats = [time_format] if time_format else ["ISO8601", *_formats(column)]
    readings = {form: _read(column, form) for form in formats}
    best, times = max(readings.items(), key=lambda item: item[1].notna().sum())
    wrong = times.isna() & column.notna()
    if wrong.any():
        expected = (
            f"a time in the format {time_format}" if time_format else "a time such as 2024-01-31 or 2024-01-31 13:00"
        )
        raise DataError(
            f"{location}, {row_of(wrong)}: expected {expected}, got {str(column[wrong].iloc[0])!r}; correct the cell, "
            "remove the row, give the format with --time-format, or rename the column to 'step' if it counts the rows"
        )
    for form, other in readings.items():
        if other.notna().equals(times.notna()) and (differs := (other != times) & times.notna()).any():
            raise DataError(
                f"{location}, {row_of(differs)}: {column[differs].iloc[0]!r} is {times[differs].iloc[0]:%d %B %Y} or "
                f"{other[differs].iloc[0]:%d %B %Y}; add --time-format {best!r} or {form!r}"
            )
    has_offsets = "%z" in (time_format or "") or _offsets(column).notna().any()
    return times if has_offsets else times.dt.tz_localize(None)


def localize(
    times: pd.Series, ids: pd.Series | None, tz: str | None, location: str, *, seeks_zone: bool = True
) -> tuple[pd.Series, str]:
    """Return local times of a series in their time zone, and the zone that the times show themselves, else "".

    Times that have a zone stay as they are. Of a time that a series has twice, in the hour in which clocks are set
    back, the first row is the time before the change. Without `tz`, times without a zone get one only if that explains
    every time that occurs twice, and never if `seeks_zone` is false.

    Raises:
        DataError: the zone is not known, or its clocks skip one of the times.
    """
    if times.dt.tz is not None:
        return times, ""
    if tz is None and not (seeks_zone and is_repeated(times, ids).any()):
        return times, ""
    is_first = _is_before_change(times, ids)
    # Days begin an hour later where clocks skip midnight.
    is_daily = bool((times.dt.normalize() == times)[times.notna()].all())
    for zone in ZONES if tz is None else (_check_zone(tz),):
        local = times.dt.tz_localize(zone, ambiguous=is_first, nonexistent="shift_forward" if is_daily else "NaT")
        if (skipped := local.isna() & times.notna()).any():
            if tz is not None:
                raise DataError(
                    f"{location}, {row_of(skipped)}: the clocks of {tz} skip {times[skipped].iloc[0]}; correct the "
                    "cell or --tz"
                )
            continue
        if tz is not None:
            return local, ""
        if not is_repeated(local, ids).any():
            return local, zone
    return times, ""


def _is_before_change(times: pd.Series, ids: pd.Series | None) -> np.ndarray:
    """Return which of the rows with one time comes before the change of clocks.

    It is the first, or the last if times fall. Whether times rise or fall is judged at the first of these rows, by the
    row before it, else by the row after it.
    """
    key = pd.Series(0, times.index) if ids is None else ids
    groups = times.groupby(key, sort=False)
    before, after = groups.shift(1), groups.shift(-1)
    falls = (before > times) | (before.isna() & (after < times))
    falls_at_first = falls.groupby([key, times], sort=False).transform("first")
    is_first, is_last = (~is_repeated(times, ids, keep=keep) for keep in ("first", "last"))
    return np.where(falls_at_first.fillna(False).astype(bool), is_last, is_first)


def row_of(bad: pd.Series) -> str:
    """Return the number of the first row where `bad` is true, counted from 1 below the header."""
    return f"row {int(bad.to_numpy().argmax()) + 1} below the header"


def is_clock(column: pd.Series) -> bool:
    """Return whether the cells are times of day, judged by the first one."""
    cells = column.dropna()
    return not cells.empty and CLOCK.fullmatch(str(cells.iloc[0]).strip()) is not None


def _parse_numbers(numbers: pd.Series, time_format: str | None, location: str) -> pd.Series | None:
    """Return the times of whole numbers; None if they are neither dates nor numbers since 1970."""
    digits = {len(str(abs(number))) for number in numbers.dropna().unique()}
    unit = time_format or next((unit for unit, lengths in DIGITS.items() if digits and digits <= lengths), None)
    since: pd.Series | None = None
    if unit is not None:
        since = pd.to_datetime(numbers, unit=unit, utc=True, errors="coerce")  # type: ignore[call-overload]
    if time_format is not None or not digits:
        return since
    form = NUMBERS.get(next(iter(digits))) if len(digits) == 1 else None
    if form is None:
        return since
    dates = _read(numbers.astype("string"), form)
    is_year = form == "%Y" or dates.dt.year.dropna().between(*YEARS).all()
    if not dates.isna().equals(numbers.isna()) or not is_year:
        return since
    # Numbers since 1970 are seldom dates by chance; a regular sequence of few of them may be.
    if since is not None and _is_regular(since):
        if _is_regular(dates):
            row = int(numbers.notna().to_numpy().argmax())
            raise DataError(
                f"{location}: {numbers.iloc[row]} is {dates.iloc[row]:%Y-%m-%d %H:%M} or "
                f"{since.iloc[row]:%Y-%m-%d %H:%M:%S} in {unit} since 1970; add --time-format {form!r} or {unit!r}"
            )
        return since
    return pd.Series(dates.dt.tz_localize(None))


def _is_regular(times: pd.Series) -> bool:
    """Return whether at least three different times have equal distances."""
    steps = pd.Series(times.dropna().unique()).sort_values().diff().dropna()
    return len(steps) > 1 and steps.nunique() == 1


def _join(frame: pd.DataFrame, names: list[str], *, is_raw: bool) -> pd.Series:
    """Join the text of several columns with spaces; whole hours next to a date become times of day.

    A year, a month and a day in columns of their own become a date.
    """
    if not is_raw and _is_year(frame[names[0]]):
        dates = frame[names[0]].astype("string").str.strip()
        for name in names[1:3]:
            dates = dates + "-" + frame[name].astype("string").str.strip().str.removesuffix(".0").str.zfill(2)
        if len(names) <= 3:
            return dates
        frame, names = frame.assign(**{names[0]: dates}), [names[0], *names[3:]]
    parts: list[pd.Series] = []
    for name in names:
        column = frame[name]
        if types.is_datetime64_any_dtype(column):
            text = column.dt.strftime("%Y-%m-%d").astype("string")
        elif types.is_numeric_dtype(column):
            text = column.astype("Int64").astype("string")
            if not is_raw and len(names) == 2 and parts:
                text = text.str.zfill(2) + ":00"
        else:
            text = column.astype("string").str.strip()
        parts.append(text)
    joined = parts[0]
    for part in parts[1:]:
        joined = joined + " " + part
    return joined


def _is_year(column: pd.Series) -> bool:
    """Return whether all cells are years, as numbers or text."""
    cells = column.dropna().astype("string").str.strip()
    has_four_digits = not cells.empty and bool(cells.str.fullmatch(r"\d{4}").all())
    return has_four_digits and bool(cells.astype(int).between(*YEARS).all())


def _formats(column: pd.Series) -> list[str]:
    """Return the formats that the first cell may have, with the day, the month or a short year first."""
    cells = column.dropna()
    text = "" if cells.empty else str(cells.iloc[0])
    if match := NAMED_MONTH.fullmatch(text):
        month, year = "%b" if len(match[2]) == 3 else "%B", "%Y" if len(match[3]) == 4 else "%y"
        clock = (" %H:%M:%S" if match[5] else " %H:%M") if match[4] else ""
        return [match[1].join(("%d", month, year)) + clock]
    if not (match := DATE.fullmatch(text)):
        return []
    separator, year = match[1], "%Y" if len(match[2]) == 4 else "%y"
    clock = (" %H:%M:%S" if match[3] else " %H:%M") if " " in match[0] else ""
    orders = [("%d", "%m", year), ("%m", "%d", year), *([("%y", "%m", "%d")] if year == "%y" else [])]
    return [separator.join(order) + clock for order in orders]


def _read(column: pd.Series, time_format: str) -> pd.Series:
    try:
        return pd.to_datetime(column.astype("string").str.strip(), format=time_format, utc=True, errors="coerce")
    except ValueError as error:
        raise DataError(f"--time-format {time_format!r}: {error}") from error


def _first_day(match: re.Match[str]) -> str:
    """Return the first day of a quarter, month or week; the text itself if the year has no such one."""
    year = int(match["year"] or match["its_year"])
    unit, number = ("Q", match["quarter"]) if match["quarter"] else (match["unit"].upper(), match["number"])
    try:
        if unit == "W":
            return date.fromisocalendar(year, int(number), 1).isoformat()
        return date(year, int(number) * 3 - 2 if unit == "Q" else int(number), 1).isoformat()
    except ValueError:
        return match[0]


def _offsets(column: pd.Series) -> pd.Series:
    return column.astype("string").str.strip().str.extract(OFFSET, expand=False)


def _offset_minutes(text: str) -> int:
    if text == "Z":
        return 0
    digits = text[1:].replace(":", "").ljust(4, "0")
    return (int(digits[:2]) * 60 + int(digits[2:])) * (-1 if text[0] == "-" else 1)


def is_repeated(times: pd.Series, ids: pd.Series | None, keep: str = "first") -> pd.Series:
    """Return which rows have a time that their series has in another row."""
    table = times.to_frame("time") if ids is None else pd.DataFrame({"time": times, "id": ids})
    return table.duplicated(keep=keep) & times.notna()  # type: ignore[arg-type]


def _check_zone(tz: str) -> str:
    from zoneinfo import ZoneInfo

    try:
        ZoneInfo(tz)
    except (LookupError, ValueError, OSError) as error:
        raise DataError(f"--tz {tz!r}: expected a time zone such as Europe/Berlin or UTC ({error})") from error
    return tz


# Number of steps of a series from which its frequency is inferred.
FREQ_STEPS = 10_000
# Steps per window and number of windows from which a frequency is inferred next to a gap: four
# trading days mostly span a weekend.
WINDOW, WINDOWS = 4, 50
# Largest number of series that a note lists by name.
NAMED = 3
# Share of regular times that must be present: events in some seconds are no series of seconds.
LEAST = 0.5
# Largest number of steps of a series whose frequency is stated.
MOST_STEPS = 10_000_000
# Years between the times of a grid, whose nanoseconds int64 can count.
MOST_YEARS = 290
# An hour, as a share of a day, with room for rounding.
CLOCK_CHANGE = 1 / 24 + 1e-9


@dataclass(frozen=True)
class Grid:
    """Regular times.

    freq: pandas alias; steps: number of grid times from first to last; at: grid index of each of the series'
    own times.
    """

    freq: str
    steps: int
    at: Int64[np.ndarray, " time"]

    @property
    def missing(self) -> int:
        """Return the number of grid steps without a time."""
        return self.steps - len(self.at)


def frequency(times: pd.DatetimeIndex) -> str:
    """Return the pandas alias of ascending times that are regular in UTC or in local time; "" for others."""
    return next((freq for view in _views(times) if (freq := infer_freq(view[:FREQ_STEPS]))), "")


def grid(times: pd.DatetimeIndex, similar: Iterable[str] = ()) -> Grid | None:
    """Fit the grid with the fewest missing times to ascending, unique times; None where none fits.

    Hours are regular in UTC, days in local time: both are tried. similar: aliases of similar series, for a
    series that is too short to show its own.
    """
    candidates = ((view, freq) for view in _views(times) for freq in dict.fromkeys([*similar, *_inferred_freqs(view)]))
    grids = [fit for view, freq in candidates if (fit := _fit_grid(view, freq)) is not None]
    return min(grids, key=lambda fit: fit.steps, default=None)


def missing_times(missing: Mapping[str, int], fill: str) -> str:
    """Write a note for the user.

    missing: series -> number of times that its file lacks, at least one. fill: as in `Reading`.
    """
    names = [*missing][:NAMED] + ([f"{len(missing) - NAMED} more"] if len(missing) > NAMED else [])
    n = sum(missing.values())
    value = {"nan": "NaN", "previous": "the previous value"}.get(fill, fill)
    return f"{', '.join(names)}: {n} missing {'time' if n == 1 else 'times'} read as {value}"


def fit_freq(times: pd.DatetimeIndex, freq: str) -> Grid | None:
    """Fit the grid of one frequency to ascending, unique times; None if it does not fit."""
    return next((fit for view in _views(times) if (fit := _fit_grid(view, freq)) is not None), None)


def stated_grid(times: pd.DatetimeIndex, freq: str) -> Grid | None:
    """Fit the grid of a frequency that the user states to ascending, unique times; None if it does not fit.

    Times may be few. A frequency without an anchor, such as W, takes that of the times: the day of the week, or the
    month.

    Raises:
        DataError: the grid has more than `MOST_STEPS` steps.
    """
    n, nanoseconds, period = rule_of(freq)
    day, month = times[0].strftime("%a").upper(), times[0].strftime("%b").upper()
    anchored = {
        "W": [f"W-{day}"],
        "M": ["MS", "ME"],
        "Q": [f"QS-{month}", f"QE-{month}"],
        "Y": [f"YS-{month}", f"YE-{month}"],
    }
    others = [] if "-" in freq else [f"{n}{name}" for name in anchored.get(period.partition("-")[0], ())]
    views = [*_views(times)]
    # Days and longer steps are those of the calendar; hours are equally long.
    if times.tz is not None and (not nanoseconds or n * nanoseconds % DAY_NANOSECONDS == 0):
        views = [times.tz_localize(None), *views]
    fits = (_fit_grid(view, name, share=0) for view in views for name in (freq, *others))
    fit = next((fit for fit in fits if fit is not None), None)
    # 1W-MON is W-MON.
    return fit and replace(fit, freq=fit.freq.removeprefix("1") if n == 1 else fit.freq)


def step_times(times: pd.Series, freq: str, location: str) -> pd.Series:
    """Return the time that stands for the step in which each time lies, as pandas' `resample` does.

    It is the beginning of the step, or the end of one that ends on a day that its frequency names: a week, ME, QE, YE.
    Steps of less than a day are counted from the first midnight, and are equally long where clocks change. Raises
    DataError for steps of several weeks, months or years.
    """
    n, nanoseconds, _ = rule_of(freq)
    if (years := times.max().year - times.min().year) > MOST_YEARS:
        raise DataError(
            f"{location}: expected times within {MOST_YEARS} years, got {years} years; leave out --freq {freq}"
        )
    wall: pd.Series = times.dt.tz_localize(None)
    days = wall.dt.normalize()
    steps: pd.Series
    if nanoseconds:
        length = pd.Timedelta(n * nanoseconds, "ns")
        if n * nanoseconds % DAY_NANOSECONDS:
            first = days.min()
            if times.dt.tz is not None:
                first = first.tz_localize(times.dt.tz, ambiguous=True, nonexistent="shift_forward")
            steps = first + (times - first) // length * length
            return steps
        steps = days - pd.to_timedelta((days - days.min()).dt.days % length.days, unit="D")
    elif n > 1:
        raise DataError(f"{location}: the times do not lie {freq} apart; give the step that they have with --freq")
    else:
        offset = to_offset(freq)
        name = offset.freqstr.partition("-")[0]
        roll = offset.rollforward if name == "W" or name.endswith("E") else offset.rollback
        steps = days.map({day: roll(day) for day in days.unique()})
    if times.dt.tz is not None:
        is_first = np.ones(len(times), dtype=bool)
        steps = steps.dt.tz_localize(times.dt.tz, ambiguous=is_first, nonexistent="shift_forward")
    return steps


def _views(times: pd.DatetimeIndex) -> Iterator[pd.DatetimeIndex]:
    """Yield the times in UTC, and also in local time if that differs and has no duplicates.

    Local times have duplicates when the clock is set back in autumn. Both are yielded without time zone;
    times that have no zone are yielded as they are. Then follow days whose time differs by at most an hour, as local
    midnights in UTC do, as equal days, and days of one number, such as each 15th, as the first day of their month.
    """
    views = [times]
    if times.tz is not None:
        utc, wall = times.tz_convert("UTC").tz_localize(None), times.tz_localize(None)
        views = [utc]
        if not utc.equals(wall) and wall.is_monotonic_increasing and wall.is_unique:
            views.append(wall)
    yield from views
    for view in views:
        days = view.as_unit("s").asi8 / 86_400
        days -= days[0]
        whole = pd.Index(np.round(days))
        if 0 < np.abs(days - whole).max() < CLOCK_CHANGE and whole.is_unique:
            yield view[0] + pd.to_timedelta(whole, unit="D")
        if view[0].day > 1 and (view.day == view[0].day).all():
            yield view - pd.Timedelta(days=view[0].day - 1)


def _inferred_freqs(times: pd.DatetimeIndex) -> Iterator[str]:
    """Yield the aliases inferred from the first times, then from short windows spread over the series."""
    yield infer_freq(times[:FREQ_STEPS])
    for at in np.unique(np.linspace(0, max(len(times) - WINDOW, 0), WINDOWS, dtype=int)):
        yield infer_freq(times[at : at + WINDOW])


def _fit_grid(times: pd.DatetimeIndex, freq: str, share: float = LEAST) -> Grid | None:
    """Return the grid of the given frequency, or None.

    A grid fits if it contains every time, and at least a share of its times are the series' own.

    Raises:
        DataError: a grid of share 0 has more than `MOST_STEPS` steps.
    """
    if not freq:
        return None
    first, last, longest = times[0], times[-1], len(times) / share if share else MOST_STEPS
    n, nanoseconds, _ = rule_of(freq)
    if last.year - first.year > MOST_YEARS:
        return None
    try:
        if nanoseconds:
            at, rest = np.divmod(times.as_unit("ns").asi8 - first.as_unit("ns").value, n * nanoseconds)
            if not share:
                _check_steps(at[-1], longest, freq, times)
            return None if rest.any() or at[-1] >= longest else Grid(freq, int(at[-1]) + 1, at)
        start = pd.date_range(first, periods=2, freq=freq)
        # A rough bound before the grid is built: months and business days differ in length.
        n_steps = (last - first) / (start[1] - start[0])
        if not share:
            _check_steps(n_steps, longest, freq, times)
        if n_steps > 2 * longest:
            return None
        regular = pd.date_range(first, last, freq=freq)
    # The dates lie outside the years that pandas supports.
    except (ValueError, OverflowError):
        return None
    at = regular.get_indexer(times)
    return None if (at < 0).any() or len(regular) > longest else Grid(freq, len(regular), at.astype(np.int64))


def _check_steps(n_steps: float, most: float, freq: str, times: pd.DatetimeIndex) -> None:
    if n_steps > most:
        raise DataError(f"--freq {freq}: {n_steps:.0f} steps from {times[0]} to {times[-1]}; give a longer step")

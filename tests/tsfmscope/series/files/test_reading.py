"""Options of reading: each gives what a hand-written table says, or one line that names the way out."""

from __future__ import annotations

from datetime import datetime, time
from pathlib import Path
from typing import Any

import numpy as np
import openpyxl
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tsfmscope.errors import ArgumentError, DataError
from tsfmscope.functions.inspect import inspect
from tsfmscope.series.calendar import future_times, present_alias
from tsfmscope.series.data_sets import DataSet, readers, usable_series
from tsfmscope.series.files.options import AS_FOUND, Reading, reading_of
from tsfmscope.series.files.sources import LoadedSeries
from tsfmscope.series.files.user_files import load_frame, load_own

N = np.nan
DAYS = pd.date_range("2024-01-01", periods=6, freq="D")


def read(frame: pd.DataFrame, **options: Any) -> LoadedSeries:
    return load_frame(frame, name="mine", reading=Reading(**options), min_length=None)


def values_of(loaded: LoadedSeries) -> dict[str, list[float]]:
    return {item.series: item.values.tolist() for item in loaded.series}


def assert_values(loaded: LoadedSeries, expected: dict[str, list[float]]) -> None:
    assert [*values_of(loaded)] == [*expected]
    for name, values in values_of(loaded).items():
        np.testing.assert_array_equal(values, expected[name])


# -- duplicates and fill


@pytest.mark.parametrize(
    ("how", "expected"), [("mean", [1.5, 3, 4]), ("sum", [3, 3, 8]), ("first", [1, 3, 4]), ("last", [2, 3, N])]
)
def test_rows_of_one_time_become_one_value(how: str, expected: list[float]) -> None:
    times = [*DAYS[[0, 0, 1, 2, 2, 2]]]
    frame = pd.DataFrame({"unique_id": "a", "ds": times, "y": [1, 2, 3, 4, 4, N]})
    loaded = read(frame, duplicates=how)
    assert_values(loaded, {"a": expected})
    assert f"3 rows share a time with another row of their series; the value is the {how} of" in loaded.notes[-1]
    with pytest.raises(DataError, match=r"row 2 below .* again; .* --duplicates mean, sum, first or last"):
        read(frame)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_joined_duplicates_are_those_of_a_loop(data: st.DataObject) -> None:
    n = data.draw(st.integers(1, 40))
    frame = pd.DataFrame({
        "unique_id": data.draw(st.lists(st.sampled_from("ab"), min_size=n, max_size=n)),
        "ds": [DAYS[i] for i in data.draw(st.lists(st.integers(0, 5), min_size=n, max_size=n))],
        "y": data.draw(st.lists(st.integers(-9, 9), min_size=n, max_size=n)),
    })  # fmt: skip
    how = data.draw(st.sampled_from(["mean", "sum", "first", "last"]))
    expected: dict[str, dict[pd.Timestamp, list[float]]] = {}
    for row in frame.itertuples():
        expected.setdefault(row.unique_id, {}).setdefault(row.ds, []).append(row.y)
    join = {"mean": lambda v: sum(v) / len(v), "sum": sum, "first": lambda v: v[0], "last": lambda v: v[-1]}[how]
    loaded = read(frame, duplicates=how, freq="D")
    for item in loaded.series:
        own = {day: join(values) for day, values in expected[item.series].items()}
        days = pd.date_range(min(own), max(own))
        np.testing.assert_allclose(item.values, [own.get(day, N) for day in days], rtol=1e-15)
        assert (item.start, item.freq) == (days[0], "D")


@pytest.mark.parametrize(
    ("fill", "expected"), [("nan", [N, 1, N, N, 4, N]), (0, [N, 1, 0, 0, 4, 0]), ("previous", [N, 1, 1, 1, 4, 4])]
)
def test_missing_steps_are_filled_after_the_first_value(fill: Any, expected: list[float]) -> None:
    frame = pd.DataFrame({"ds": DAYS[[0, 1, 3, 4, 5]], "y": [N, 1, N, 4, N], "z": 1.0})
    loaded = read(frame, fill=fill, value="y", freq="D")
    assert_values(loaded, {"y": expected})
    array = usable_series(
        np.array([N, 1, N, N, 4, N]), max_series=None, seed=0, reading=Reading(fill=fill), takes_any=True
    )
    np.testing.assert_array_equal(array.loaded.series[0].values, expected)


def test_a_series_without_values_is_not_filled() -> None:
    loaded = read(pd.DataFrame({"ds": DAYS, "y": np.arange(6.0), "z": N}), fill="0")
    assert [item.series for item in loaded.series] == ["y"] and loaded.skipped == [("z", "all NaN")]


def test_the_note_states_what_missing_times_are_read_as(caplog: pytest.LogCaptureFixture) -> None:
    days = pd.date_range("2024-01-01", periods=60).delete([7, 9])
    frame = pd.DataFrame({"ds": days, "y": np.arange(58.0)})
    for fill, said in (("nan", "NaN"), ("0", "0"), ("previous", "the previous value")):
        usable_series(frame, max_series=None, seed=0, reading=Reading(fill=fill))
        assert caplog.records[-1].message == f"y: 2 missing times read as {said}"


# -- frequency


@pytest.mark.parametrize(
    ("freq", "times", "found", "start", "steps"),
    [
        ("D", pd.DatetimeIndex(["2024-01-01", "2024-01-05", "2024-01-30"]), "D", "2024-01-01", 30),
        ("W", pd.DatetimeIndex(["2024-01-03", "2024-01-10", "2024-02-07"]), "W-WED", "2024-01-03", 6),
        ("M", pd.DatetimeIndex(["2024-01-01", "2024-04-01"]), "MS", "2024-01-01", 4),
        ("ME", pd.DatetimeIndex(["2024-01-31", "2024-04-30"]), "ME", "2024-01-31", 4),
        ("MS", pd.DatetimeIndex(["2024-01-15", "2024-04-15"]), "MS", "2024-01-15", 4),
        ("Q", pd.DatetimeIndex(["2024-02-01", "2024-08-01"]), "QS-FEB", "2024-02-01", 3),
        ("YS", pd.DatetimeIndex(["2020-07-01", "2024-07-01"]), "YS-JUL", "2020-07-01", 5),
        ("2h", pd.DatetimeIndex(["2024-01-01 01:00", "2024-01-01 07:00"]), "2h", "2024-01-01 01:00", 4),
        ("B", pd.DatetimeIndex(["2024-01-05", "2024-01-08", "2024-01-10"]), "B", "2024-01-05", 4),
        ("H", pd.DatetimeIndex(["2024-01-01", "2024-01-01 05:00"]), "h", "2024-01-01", 6),
    ],
)
def test_few_times_lie_on_the_steps_that_the_user_states(
    freq: str, times: pd.DatetimeIndex, found: str, start: str, steps: int
) -> None:
    (series,) = read(pd.DataFrame({"ds": times, "y": np.arange(len(times)) + 1.0}), freq=freq).series
    assert (series.freq, series.start, len(series.values)) == (found, pd.Timestamp(start), steps)
    assert series.values[[0, -1]].tolist() == [1, len(times)]
    assert np.isfinite(series.values).sum() == len(times)


@pytest.mark.parametrize(
    "freq", ["D", "h", "W", "W-WED", "MS", "ME", "QS-FEB", "QE", "Y", "YS-JUL", "YE-JUN", "15min", "6h", "12h", "2D"]
)
@pytest.mark.parametrize("zone", [None, "Europe/Berlin", "Asia/Kolkata"])
def test_times_within_a_step_are_joined_as_pandas_resamples(freq: str, zone: str | None) -> None:
    rng = np.random.default_rng(0)
    minutes = np.sort(rng.choice(60 * 24 * 500, 900, replace=False))
    minutes = minutes[(minutes < 200_000) | (minutes > 400_000)]
    times = (pd.Timestamp("2024-01-03", tz="UTC") + pd.to_timedelta(minutes, unit="min")).tz_convert(zone or "UTC")
    times = times.tz_localize(None) if zone is None else times
    frame = pd.DataFrame({"ds": times, "y": rng.integers(1, 9, len(times)).astype(float)})
    loaded = read(frame, freq=freq, duplicates="sum")
    (series,) = loaded.series
    alias = present_alias(freq)
    expected = frame.set_index("ds")["y"].resample(alias).sum(min_count=1)
    if freq in {"6h", "12h"} and zone == "Europe/Berlin":
        # pandas counts equal steps from the first midnight, too, but repeats one at a change of clocks.
        first = times[0].normalize()
        expected = frame["y"].groupby((times - first) // pd.Timedelta(freq)).sum()
        expected = expected.reindex(range(expected.index[0], expected.index[-1] + 1))
        expected.index = first + expected.index * pd.Timedelta(freq)
    np.testing.assert_array_equal(series.values, expected.to_numpy())
    assert series.start == expected.index[0].tz_localize(None)
    stamps = future_times(series.start, series.freq, 0, len(expected), series.tz)
    assert stamps.tz_localize(None).equals(pd.DatetimeIndex(expected.index).tz_localize(None).as_unit(stamps.unit))
    assert any("times are moved to the steps of" in note for note in loaded.notes)


def test_hours_are_joined_to_local_days_across_a_change_of_clocks() -> None:
    hours = pd.date_range("2024-10-26", "2024-10-28 23:00", freq="h", tz="Europe/Berlin")
    frame = pd.DataFrame({"ds": hours, "y": 1.0})
    for table in (frame, frame.assign(ds=hours.tz_localize(None))):
        (series,) = read(table, freq="D", duplicates="sum", tz="Europe/Berlin").series
        assert series.values.tolist() == [24, 25, 24]
        assert (series.freq, series.start, series.tz) == ("D", datetime(2024, 10, 26), "Europe/Berlin")


def test_duplicates_that_are_stated_are_no_change_of_clocks() -> None:
    hours = pd.date_range("2024-10-27", periods=30, freq="h", tz="Europe/Berlin").tz_localize(None)
    frame = pd.DataFrame({"ds": hours, "y": np.arange(30.0)})
    assert len(read(frame).series[0].values) == 30
    joined = read(frame, duplicates="mean").series[0]
    assert len(joined.values) == 29 and joined.values[2] == 2.5 and joined.tz is None


def test_days_of_a_weekend_belong_to_friday() -> None:
    frame = pd.DataFrame({"ds": pd.date_range("2024-01-01", periods=14), "y": 1.0})
    (series,) = read(frame, freq="B", duplicates="sum").series
    assert series.values.tolist() == [1, 1, 1, 1, 3] * 2


def test_steps_of_several_days_begin_at_the_first_day_of_the_table() -> None:
    frame = pd.DataFrame({"unique_id": [*"aaaabbb"], "ds": [*DAYS[:4], *DAYS[1:4]], "y": 1.0})
    loaded = read(frame, freq="2D", duplicates="sum")
    assert_values(loaded, {"a": [2, 2], "b": [1, 2]})
    assert [item.start for item in loaded.series] == [DAYS[0], DAYS[0]]


@pytest.mark.parametrize(
    ("freq", "times", "wrong"),
    [
        ("2W", ["2024-01-01", "2024-01-04"], "the times do not lie 2W apart"),
        ("s", ["1900-01-01", "2024-01-04"], "--freq s: .* steps from 1900-01-01 .*; give a longer step"),
        ("D", ["2024-01-01 03:00", "2024-01-01 04:00"], r"again; .* --duplicates"),
    ],
)
def test_times_that_fit_no_step_are_refused(freq: str, times: list[str], wrong: str) -> None:
    with pytest.raises(DataError, match=wrong):
        read(pd.DataFrame({"ds": pd.DatetimeIndex(times), "y": [1.0, 2]}), freq=freq)


def test_a_frequency_is_that_of_arrays_and_of_tables_without_times(tmp_path: Path) -> None:
    for data in (np.arange(60.0), pd.DataFrame({"y": np.arange(60.0)})):
        (series,) = usable_series(data, max_series=None, seed=0, reading=Reading(freq="h")).loaded.series
        assert series.freq == "h"
    own = {"item_id": ["a", "b"], "start": [DAYS[0]] * 2, "freq": ["", "D"], "target": [np.arange(60.0)] * 2}
    pd.DataFrame(own).to_parquet(tmp_path / "a.parquet")
    with pytest.raises(DataError, match="b: its data state the frequency D; leave out --freq h"):
        load_own(tmp_path / "a.parquet", name="mine", reading=Reading(freq="h"))
    loaded = load_own(tmp_path / "a.parquet", name="mine", reading=Reading(freq="D", tz="Asia/Tokyo"))
    assert [(item.freq, item.tz) for item in loaded.series] == [("D", "Asia/Tokyo")] * 2


def test_series_of_several_frequencies_are_joined_to_one() -> None:
    hours = pd.date_range("2024-01-01", periods=24 * 40, freq="h")
    days = pd.date_range("2024-01-01", periods=40)
    frame = pd.DataFrame({"unique_id": ["h"] * len(hours) + ["d"] * 40, "ds": [*hours, *days], "y": 1.0})
    with pytest.raises(DataError, match=r"several frequencies, D, h; .* --freq, and with --duplicates"):
        read(frame)
    assert_values(read(frame, freq="D", duplicates="sum"), {"h": [24.0] * 40, "d": [1.0] * 40})


# -- numbers


@pytest.mark.parametrize(
    ("text", "decimal", "expected"),
    [
        ("a\n1'303.50\n1'404\n7\n", None, [1303.5, 1404, 7]),
        ("a\n1’303.50\n12’345’678\n", None, [1303.5, 12345678]),
        ("a;b\n1 303,50;x\n7,25;x\n", None, [1303.5, 7.25]),
        ("a\n1\u00a0303\n1\u202f404\n".replace("\u202f", "\u00a0"), None, [1303, 1404]),
        ("a\n1\u202f303.5\n999\n", None, [1303.5, 999]),
        ("a;b\n0,5;1.234\n1,5;1.235\n", None, [0.5, 1.5]),
        ("b;a\n0,5;1.234\n1,5;1.235\n", None, [1234, 1235]),
        ("a;b\n1.303;x\n980;x\n", ",", [1303, 980]),
        ("a;b\n1.303;x\n980;x\n", ".", [1.303, 980]),
        ("a;b\n0.303;x\n1.980;x\n", None, [0.303, 1.98]),
        ("a;b\n1.30;x\n1.98;x\n", None, [1.3, 1.98]),
        ("a,b\n1.303,x\n2.980,x\n", None, [1.303, 2.98]),
        ('a\n"1,303"\n"2,404"\n', ".", [1303, 2404]),
        ('a\n"1,303"\n"2,404"\n', ",", [1.303, 2.404]),
        ("a;b\n1,5;x\n2;x\n", ",", [1.5, 2]),
        ("a;b\n-1.303.404,5;x\n+2,25;x\n", None, [-1303404.5, 2.25]),
    ],
)
def test_marks_of_thousands_and_decimals(tmp_path: Path, text: str, decimal: Any, expected: list[float]) -> None:
    path = tmp_path / "a.csv"
    path.write_text(
        "ds" + (";" if ";" in text else ",") + text.replace("\n", "\n2024-01-01" + (";" if ";" in text else ","), 1)
    )
    lines = text.splitlines()
    sign = ";" if ";" in text else ","
    rows = [f"{DAYS[n]:%Y-%m-%d}{sign}{line}" for n, line in enumerate(lines[1:])]
    path.write_text("\n".join([f"ds{sign}{lines[0]}", *rows]) + "\n")
    loaded = load_own(path, name="mine", reading=Reading(value="a", decimal=decimal), min_length=None)
    assert_values(loaded, {"a": expected})


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("a;b\n1.303;5\n980;6\n", "column 'a': 1.303 is 1.303 or 1303; add --decimal . or --decimal ,"),
        ('ds,a\n2024-01-01,"1,303"\n2024-01-02,"2,404"\n', "'a', row 1 below the header: .* '1,303'; .* --decimal"),
        ("a\n1'30\n2\n", "'a', row 1 below the header: .* \"1'30\""),
        ("a\n1'303\n2 404\n", "'a', row 1 below the header: .* \"1'303\""),
    ],
)
def test_numbers_that_can_be_read_in_two_ways_are_refused(tmp_path: Path, text: str, wrong: str) -> None:
    (tmp_path / "a.csv").write_text(text)
    with pytest.raises(DataError, match=wrong):
        load_own(tmp_path / "a.csv", name="mine", min_length=None)


def test_ids_and_times_with_dots_stay_text_where_the_decimal_sign_is_a_comma(tmp_path: Path) -> None:
    rows = "".join(f"{n + 13}.01.2024;1.234;{n},5\n" for n in range(6))
    (tmp_path / "a.csv").write_text("when;unique_id;y\n" + rows)
    loaded = load_own(tmp_path / "a.csv", name="mine", min_length=None)
    assert_values(loaded, {"1.234": [0.5, 1.5, 2.5, 3.5, 4.5, 5.5]})
    assert any("numbers have a decimal comma" in note for note in loaded.notes)


def test_a_decimal_comma_in_one_column_leaves_points_of_another(tmp_path: Path) -> None:
    expected = {"y": [0.5, 1.5], "z": [0.125, 1.125]}
    (tmp_path / "a.csv").write_text('y,z\n"0,5",0.125\n"1,5",1.125\n')
    (tmp_path / "b.csv").write_text("y;z\n0,5;0.125\n1,5;1.125\n")
    workbook(tmp_path / "c.xlsx", {"S": [["y", "z"], ["0,5", 0.125], ["1,5", 1.125]]})
    workbook(tmp_path / "d.xlsx", {"S": [["y", "z"], ["0,5", 1.125], ["1,5", 2.125]]})
    for name in "abc":
        (path,) = tmp_path.glob(f"{name}.*")
        assert_values(load_own(path, name="mine", min_length=None), expected)
    assert_values(load_own(tmp_path / "d.xlsx", name="mine", min_length=None), {"y": [0.5, 1.5], "z": [1.125, 2.125]})


def test_ids_that_look_missing_are_ids(tmp_path: Path) -> None:
    for cell, name in (("NA", "a.csv"), ("5", "b.csv")):
        rows = [f"{item},{day:%Y-%m-%d},{cell}\n" for item in ("NA", "DE") for day in DAYS]
        (tmp_path / name).write_text("item_id,ds,y\n" + "".join(rows))
    assert [*values_of(load_own(tmp_path / "b.csv", name="mine", min_length=None))] == ["NA", "DE"]
    skipped = load_own(tmp_path / "a.csv", name="mine", min_length=None).skipped
    assert skipped == [("NA", "all NaN"), ("DE", "all NaN")]


# -- Excel


def workbook(path: Path, sheets: dict[str, list[list[Any]]]) -> Path:
    book = openpyxl.Workbook()
    book.remove(book.active)
    for name, rows in sheets.items():
        sheet = book.create_sheet(name)
        for row in rows:
            sheet.append(row)
    book.save(path)
    return path


TABLE = [["Date", "Shop A", "Shop B"], *([day.to_pydatetime(), 1.5 + n, 2 * n] for n, day in enumerate(DAYS))]


@pytest.mark.parametrize(
    ("sheets", "options", "start", "a"),
    [
        ({"Sales": TABLE}, {}, "2024-01-01", 1.5),
        ({"Sales": TABLE, "Notes": []}, {}, "2024-01-01", 1.5),
        ({"Sales": [["Report of sales"], [], *TABLE, [], []]}, {}, "2024-01-01", 1.5),
        ({"Sales": [["Source", "World Bank"], ["Unit", "EUR"], [], *TABLE]}, {}, "2024-01-01", 1.5),
        ({"Other": [["x"], [1]], "Sales": TABLE}, {"sheet": "Sales"}, "2024-01-01", 1.5),
        ({"Sales": [[f"{cell:%d.%m.%Y}" if isinstance(cell, datetime) else "1.303,25" if cell == 1.5 else cell
                     for cell in row] for row in TABLE]},
         {"decimal": ",", "time_format": "%d.%m.%Y"}, "2024-01-01", 1303.25),
    ],
)  # fmt: skip
def test_a_sheet_is_read_as_its_table(
    tmp_path: Path, sheets: dict[str, list[list[Any]]], options: dict[str, Any], start: str, a: float
) -> None:
    path = workbook(tmp_path / "a.xlsx", sheets)
    loaded = load_own(path, name="mine", reading=Reading(**options), min_length=None)
    assert [item.series for item in loaded.series] == ["Shop A", "Shop B"]
    first, second = loaded.series
    assert (first.start, first.freq, first.values[0]) == (pd.Timestamp(start), "D", a)
    assert second.values.tolist() == [2 * n for n in range(6)]


def test_hours_of_a_sheet_are_whole_as_excel_shows_them(tmp_path: Path) -> None:
    hours = pd.date_range("2024-01-01", periods=200, freq="h")
    path = workbook(
        tmp_path / "a.xlsx", {"S": [["t", "y"], *([hour.to_pydatetime(), n] for n, hour in enumerate(hours))]}
    )
    (series,) = load_own(path, name="mine").series
    assert (series.freq, len(series.values)) == ("h", 200)
    days = [hour.to_pydatetime() for hour in hours]
    split = [
        ["Date", "Time", "y"],
        *([datetime(*day.timetuple()[:3]), time(day.hour), n] for n, day in enumerate(days)),
    ]
    (series,) = load_own(workbook(tmp_path / "b.xlsx", {"S": split}), name="mine").series
    assert (series.freq, len(series.values)) == ("h", 200)


def test_what_pandas_writes_to_excel_is_read(tmp_path: Path) -> None:
    frame = pd.DataFrame({"y": np.linspace(0, 1, 60) / 3}, index=pd.date_range("2024-01-01", periods=60))
    frame.to_excel(tmp_path / "a.xlsx")
    (series,) = load_own(tmp_path / "a.xlsx", name="mine").series
    # DuckDB rounds some numbers to a neighbour.
    np.testing.assert_allclose(series.values, frame["y"], rtol=1e-15)
    assert (series.freq, series.start) == ("D", frame.index[0])


@pytest.mark.parametrize(
    ("sheets", "options", "wrong"),
    [
        ({"A": TABLE, "B": TABLE}, {}, "expected one sheet with values, got sheets 'A', 'B'; name one with --sheet"),
        ({"A": TABLE}, {"sheet": "C"}, "no sheet is named 'C'; it has 'A'"),
        ({"A": []}, {}, "expected one sheet with values, got no cell"),
        ({"A": [["x", "y"], ["a", "b"]]}, {}, "expected a column of numbers"),
    ],
)
def test_a_book_that_cannot_be_read_is_refused(
    tmp_path: Path, sheets: dict[str, list[list[Any]]], options: dict[str, Any], wrong: str
) -> None:
    with pytest.raises(DataError, match=wrong):
        load_own(workbook(tmp_path / "a.xlsx", sheets), name="mine", reading=Reading(**options))


@pytest.mark.parametrize("data", [b"", b"PK\x03\x04 no archive", b"ds,y\n1,2\n"])
def test_a_damaged_book_is_named(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "a.xlsx").write_bytes(data)
    with pytest.raises(DataError, match=r"expected an Excel file .xlsx, got"):
        load_own(tmp_path / "a.xlsx", name="mine")


# -- folders


def long(names: str, days: pd.DatetimeIndex, **others: Any) -> pd.DataFrame:
    rows = [(name, day, 10 * n + at) for n, name in enumerate(names) for at, day in enumerate(days)]
    return pd.DataFrame(rows, columns=["item_id", "timestamp", "target"]).assign(**others)


def test_part_files_are_one_table(tmp_path: Path) -> None:
    for folder, names in (
        ("spark", ["part-00000-a1.snappy.parquet", "part-00001-b2.snappy.parquet"]),
        ("hub", ["train-00000-of-00002.parquet", "train-00001-of-00002.parquet"]),
        ("dask", ["part.0.parquet", "part.1.parquet"]),
    ):
        (tmp_path / folder).mkdir()
        for name, days in zip(names, (DAYS[:3], DAYS[3:]), strict=True):
            long("ab", days).to_parquet(tmp_path / folder / name)
        (tmp_path / folder / "_SUCCESS").touch()
        loaded = load_own(tmp_path / folder, name="mine", min_length=None)
        assert_values(loaded, {"a": [0, 1, 2, 0, 1, 2], "b": [10, 11, 12, 10, 11, 12]})
        assert "2 files read as one table; --no-one-table reads them apart" in loaded.notes[0]


def test_files_of_other_names_are_tables_of_their_own_unless_the_user_says_otherwise(tmp_path: Path) -> None:
    long("a", DAYS[:3]).to_csv(tmp_path / "sales_2023.csv", index=False)
    long("a", DAYS[3:]).to_csv(tmp_path / "sales_2024.csv", index=False)
    loaded = load_own(tmp_path, name="mine", min_length=None)
    assert_values(loaded, {"sales_2023:a": [0, 1, 2], "sales_2024:a": [0, 1, 2]})
    assert "2 tables; ids begin with the name of the file; --one-table reads one table" in loaded.notes[0]
    assert [note.partition(":")[0] for note in loaded.notes[1:]] == [
        str(tmp_path / f"sales_{year}.csv") for year in (2023, 2024)
    ]
    (tmp_path / "notes.txt").touch()
    (tmp_path / "old").mkdir()
    (tmp_path / "_SUCCESS").touch()
    one = load_own(tmp_path, name="mine", reading=Reading(one_table=True), min_length=None)
    assert f"{tmp_path}: not read: 'notes.txt', 'old'" in one.notes
    assert_values(one, {"a": [0, 1, 2, 0, 1, 2]})
    apart = load_own(tmp_path, name="mine", reading=Reading(one_table=False), min_length=None)
    assert values_of(apart) == values_of(loaded) and not any("--one-table" in note for note in apart.notes)
    assert [*readers(str(tmp_path), max_series=None, seed=0, reading=AS_FOUND)] == [
        str(tmp_path / f"sales_{year}.csv") for year in (2023, 2024)
    ]
    assert [*readers(str(tmp_path), max_series=None, seed=0, reading=Reading(one_table=True))] == [str(tmp_path)]


def write_partitions(root: Path, tables: dict[str, pd.DataFrame]) -> Path:
    for folder, table in tables.items():
        (root / folder).mkdir(parents=True)
        table.to_parquet(root / folder / "part-0.parquet")
    return root


def test_partitions_are_ids_where_ids_alone_do_not_tell_series_apart(tmp_path: Path) -> None:
    plain = pd.DataFrame({"day": DAYS, "sold": np.arange(6.0)})
    stores = write_partitions(tmp_path / "stores", {"store=7": plain, "store=a%20b": plain})
    assert_values(load_own(stores, name="mine", min_length=None), {"7": [*range(6)], "a b": [*range(6)]})
    regions = write_partitions(tmp_path / "regions", {"region=EU": long("a", DAYS), "region=US": long("a", DAYS)})
    assert [*values_of(load_own(regions, name="mine", min_length=None))] == ["EU/a", "US/a"]
    unique = write_partitions(tmp_path / "unique", {"region=EU": long("a", DAYS), "region=US": long("b", DAYS)})
    assert [*values_of(load_own(unique, name="mine", min_length=None))] == ["a", "b"]
    named = load_own(unique, name="mine", reading=Reading(id=["item_id", "region"]), min_length=None)
    assert [*values_of(named)] == ["a/EU", "b/US"]


def test_partitions_in_time_are_no_ids(tmp_path: Path) -> None:
    years = {"year=2024/month=1": long("ab", DAYS[:3]), "year=2024/month=2": long("ab", DAYS[3:])}
    loaded = load_own(write_partitions(tmp_path / "years", years), name="mine", min_length=None)
    assert_values(loaded, {"a": [0, 1, 2, 0, 1, 2], "b": [10, 11, 12, 10, 11, 12]})
    dates = {
        f"dt={day:%Y-%m-%d}": pd.DataFrame({"item_id": ["a", "b"], "target": [n, -n]}) for n, day in enumerate(DAYS)
    }
    loaded = load_own(write_partitions(tmp_path / "dates", dates), name="mine", min_length=None)
    assert_values(loaded, {"a": [*range(6)], "b": [-n for n in range(6)]})
    assert (loaded.series[0].freq, loaded.series[0].start) == ("D", DAYS[0])


def test_what_pyarrow_partitions_is_read(tmp_path: Path) -> None:
    table = pa.Table.from_pandas(long("ab", DAYS, region="EU"))
    pq.write_to_dataset(table, tmp_path / "set", partition_cols=["region", "item_id"])
    loaded = load_own(tmp_path / "set", name="mine", min_length=None)
    assert_values(loaded, {"a": [*range(6)], "b": [*range(10, 16)]})


def test_parts_of_the_own_layout_keep_their_ids(tmp_path: Path) -> None:
    for number, name in enumerate("ab"):
        own = {"item_id": [name], "start": [DAYS[0]], "freq": ["D"], "target": [np.arange(6.0)]}
        pd.DataFrame(own).to_parquet(tmp_path / f"part-{number}.parquet")
    assert [*values_of(load_own(tmp_path, name="mine", min_length=None))] == ["a", "b"]
    pd.DataFrame(own).to_parquet(tmp_path / "part-2.parquet")
    with pytest.raises(DataError, match="series 'b' is in several files"):
        load_own(tmp_path, name="mine", min_length=None)


def test_parts_with_other_columns_are_refused(tmp_path: Path) -> None:
    long("a", DAYS[:3]).to_parquet(tmp_path / "part-0.parquet")
    long("a", DAYS[3:], price=1.0).to_parquet(tmp_path / "part-1.parquet")
    with pytest.raises(
        DataError, match=r"only one of part-0.parquet and part-1.parquet has 'price'; set --no-one-table"
    ):
        load_own(tmp_path, name="mine", min_length=None)


def test_ids_that_look_like_numbers_in_one_part_are_text_in_all(tmp_path: Path) -> None:
    for number, name in enumerate(("7", "x7")):
        frame = pd.DataFrame({"shop": name, "ds": DAYS, "y": 1.0})
        frame.to_csv(tmp_path / f"part-{number}.csv", index=False)
    loaded = load_own(tmp_path, name="mine", reading=Reading(id="shop"), min_length=None)
    assert [*values_of(loaded)] == ["7", "x7"]


# -- rows of series


ROWS = [
    {"item_id": "a", "start": pd.Period("2024-01-01", "D"), "target": np.arange(40.0)},
    {"item_id": "b", "start": pd.Period("2024-01-05", "D"), "target": [1.0, None, 3.0] * 13},
]


def usable(data: Any, **options: Any) -> LoadedSeries:
    return usable_series(data, max_series=None, seed=0, reading=Reading(**options)).loaded


def test_data_sets_of_gluonts_are_read() -> None:
    from gluonts.dataset.common import ListDataset
    from gluonts.dataset.pandas import PandasDataset

    frame = pd.DataFrame({"target": np.arange(40.0)}, index=pd.period_range("2024-01-01", periods=40, freq="D"))
    for data in (ROWS, ListDataset(ROWS, freq="D"), PandasDataset({"a": frame, "b": frame[4:]})):
        first, second = usable(data).series
        assert (first.series, first.freq, first.start) == ("a", "D", datetime(2024, 1, 1))
        assert (second.series, second.freq, second.start) == ("b", "D", datetime(2024, 1, 5))
        np.testing.assert_array_equal(first.values, np.arange(40.0))


@pytest.mark.parametrize(
    ("period", "freq"), [("M", "MS"), ("Q", "QS-OCT"), ("W", "W-MON"), ("h", "h"), ("Y", "YS-JAN"), ("5min", "5min")]
)
def test_a_period_gives_start_and_frequency(period: str, freq: str) -> None:
    (series,) = usable([{"start": pd.Period("2024-01-01", period), "target": np.arange(40.0)}]).series
    assert (series.series, series.freq, series.start) == ("series-0", freq, datetime(2024, 1, 1))


def test_several_variates_are_several_series() -> None:
    target = np.arange(80.0).reshape(2, 40)
    first, second = usable([{"item_id": "a", "start": "2024-01-01", "freq": "D", "target": target}]).series
    assert (first.series, second.series, second.freq) == ("a:0", "a:1", "D")
    np.testing.assert_array_equal(second.values, target[1])


@pytest.mark.parametrize(
    ("row", "wrong"),
    [
        ({"item_id": "x", "target": ["a", "b"]}, "series 'x': expected numbers as its target"),
        (
            {"item_id": "x", "target": np.ones((2, 2, 2))},
            r"expected a target \[step\] or \[variate, step\], got more axes",
        ),
    ],
)
def test_rows_without_numbers_are_refused(row: dict[str, Any], wrong: str) -> None:
    with pytest.raises(DataError, match=wrong):
        usable([row])


NESTED = pd.DataFrame({
    "id": ["a", "b"],
    "timestamp": [[*pd.date_range("2024-01-01", periods=40)], [*pd.date_range("2024-01-03", periods=33)]],
    "target": [np.arange(40.0), np.arange(33)],
})  # fmt: skip


def test_data_sets_of_hugging_face_and_tables_of_lists_are_read(tmp_path: Path) -> None:
    import datasets

    NESTED.to_parquet(tmp_path / "nested.parquet")
    loaded = datasets.Dataset.from_pandas(NESTED)
    flat = datasets.Dataset.from_pandas(long("ab", pd.date_range("2024-01-01", periods=40)))
    for data in (NESTED, loaded, pa.Table.from_pandas(NESTED), str(tmp_path / "nested.parquet")):
        first, second = usable(data).series
        assert (first.series, first.freq, first.start) == ("a", "D", datetime(2024, 1, 1))
        assert (second.series, second.start, len(second.values)) == ("b", datetime(2024, 1, 3), 33)
        np.testing.assert_array_equal(first.values, np.arange(40.0))
    assert [*values_of(usable(flat))] == ["a", "b"]
    started = datasets.Dataset.from_list([
        {"item_id": "a", "start": datetime(2024, 1, 1), "freq": "D", "target": [1.0 * n for n in range(40)]}
    ])  # fmt: skip
    assert [(item.series, item.freq) for item in usable(started).series] == [("a", "D")]
    with pytest.raises(DataError, match="expected one split, such as data"):
        usable(datasets.DatasetDict({"train": loaded}))


def test_nested_rows_without_ids_are_numbered_and_ragged_ones_refused() -> None:
    assert [item.series for item in usable(NESTED.drop(columns="id")).series] == ["series-0", "series-1"]
    ragged = NESTED.assign(target=[np.arange(40.0), np.arange(32)])
    with pytest.raises(DataError, match=r"row 2: .* one length, got 33 in 'timestamp' and 32 in 'target'"):
        usable(ragged)


# -- options


@pytest.mark.parametrize(
    ("options", "wrong"),
    [
        ({"duplicate": "mean"}, "duplicate: no argument has this name; did you mean duplicates?"),
        ({"zzz": 1}, "zzz: no argument has this name; expected one of context, time, id, value"),
        ({"contxt": 3}, "contxt: no argument has this name; did you mean context?"),
        ({"fill": "ffill"}, "fill: got 'ffill', expected 'nan', '0' or 'previous'"),
        ({"season": 0}, "season: got 0, expected greater than or equal to 1"),
        ({"freq": "fortnight"}, "freq: got 'fortnight', expected a pandas alias such as h, D, W, MS"),
        ({"decimal": ";"}, "decimal: got ';', expected '.' or ','"),
    ],
)
def test_an_option_that_does_not_exist_or_fit_is_refused(options: dict[str, Any], wrong: str) -> None:
    with pytest.raises(ArgumentError, match=wrong):
        reading_of(options, ["context"])


def test_the_page_and_the_help_name_every_option() -> None:
    page = (Path(__file__).parents[4] / "docs" / "own_data.md").read_text("utf-8")
    help_text = (inspect.__doc__ or "").partition("reading: ")[2].partition("\n\n")[0]
    for name in Reading.model_fields:
        assert f"`--{name.replace('_', '-')}`" in page and name in help_text, name


def test_a_block_of_params_has_the_same_options() -> None:
    block = DataSet(source="folder", file="a.csv", horizon=4, freq="D", duplicates="sum", fill=0, one_table=True)
    assert block.reading == Reading(freq="D", duplicates="sum", fill="0", one_table=True)
    assert block.to_dict()["fill"] == "0" and "decimal" not in block.to_dict()
    with pytest.raises(ValueError, match="freq, fill: expected source folder, got 'bundled'"):
        DataSet(source="bundled", horizon=4, freq="D", fill="previous")


# -- what an attack found


def test_weeks_of_one_day_stay_where_other_series_are_joined_to_them() -> None:
    mondays = pd.date_range("2024-01-01", periods=5, freq="W-MON")
    frame = pd.DataFrame({"unique_id": [*"aaaaabbbbb"], "ds": [*mondays, *(mondays - pd.Timedelta(days=1))], "y": 1.0})
    loaded = read(frame, freq="W-MON")
    assert [(item.start, len(item.values)) for item in loaded.series] == [(mondays[0], 5)] * 2


def test_beginnings_and_ends_of_months_are_joined() -> None:
    first, last = (pd.date_range("2024-01-01", periods=4, freq=freq) for freq in ("MS", "ME"))
    frame = pd.DataFrame({"unique_id": [*"aaaabbbb"], "ds": [*first, *last], "y": 1.0})
    for freq in ("MS", "ME"):
        assert {item.freq for item in read(frame, freq=freq).series} == {freq}


def test_a_generator_of_rows_keeps_its_first() -> None:
    rows = ({"start": pd.Period("2024-01-01", "D"), "target": np.arange(40.0)} for _ in range(3))
    assert len(usable(rows).series) == 3


def test_series_of_several_zones_are_refused() -> None:
    days = pd.date_range("2024-01-01", periods=40)
    series = {zone: pd.Series(np.arange(40.0), days.tz_localize(zone)) for zone in ("Europe/Berlin", "UTC")}
    with pytest.raises(DataError, match="expected all Series with times in one zone"):
        usable(series)


def test_the_repeated_hour_is_read_by_the_order_of_each_series() -> None:
    autumn = pd.date_range("2024-10-26", periods=60, freq="h", tz="Europe/Berlin").tz_localize(None)
    winter = pd.date_range("2024-01-01", periods=60, freq="h")
    y = np.arange(60.0)
    a, b = pd.DataFrame({"ds": autumn, "y": y}), pd.DataFrame({"ds": winter, "y": y})
    for parts in ((a, b), (b, a), (a[::-1], b), (a, b[::-1])):
        frame = pd.concat([part.assign(unique_id="a" if part["ds"].max() > winter[-1] else "b") for part in parts])
        loaded = read(frame)
        assert all(item.values.tolist() == y.tolist() for item in loaded.series)
    appended = read(pd.concat([a, pd.DataFrame({"ds": autumn[:1] - pd.Timedelta(hours=1), "y": [-1.0]})]))
    assert appended.series[0].values.tolist() == [-1, *y]


@pytest.mark.parametrize(
    ("rows", "options", "wrong"),
    [
        ([{"start": "01/02/2024", "target": [1.0]}], {}, "is 01 February 2024 or 02 January 2024; add --time-format"),
        ([{"start": "n/a", "target": [1.0], "freq": "D"}], {}, "expected a time such as 2024-01-31"),
        ([{"item_id": 1, "target": [1.0]}, {"item_id": None, "target": [1.0]}], {}, "got 1 rows without an id"),
        ([{"item_id": "a", "target": [1.0]}] * 2, {}, "'a' is the id of several rows"),
        ([{"item_id": "a", "target": [1.0], "freq": "nonsense"}], {}, "expected a pandas alias"),
    ],
)
def test_rows_are_checked_as_tables_are(rows: list[dict[str, Any]], options: dict[str, Any], wrong: str) -> None:
    with pytest.raises(DataError, match=wrong):
        usable(rows, **options)


def test_starts_are_read_as_times_are() -> None:
    rows = [{"item_id": 1.0, "start": 20240101, "freq": "D", "target": np.arange(40.0)}, {"item_id": 2, "target": None}]
    (series,) = usable(rows).series
    assert (series.series, series.start) == ("1", datetime(2024, 1, 1))
    utc = pd.Timestamp("2023-12-31 23:00", tz="UTC")
    (series,) = usable([{"start": utc, "freq": "D", "target": np.arange(40.0)}], tz="Europe/Berlin").series
    assert (series.start, series.tz) == (datetime(2024, 1, 1), "Europe/Berlin")


def test_variates_in_lists_are_series(tmp_path: Path) -> None:
    frame = pd.DataFrame(
        {"item_id": ["a"], "start": [DAYS[0]], "freq": ["D"], "target": [[[1.0] * 40, [2.0] * 39 + [3]]]}
    )
    frame.to_parquet(tmp_path / "a.parquet")
    for data in (frame, pa.Table.from_pandas(frame), str(tmp_path / "a.parquet")):
        loaded = usable_series(data, max_series=None, seed=0, takes_any=True).loaded
        assert [item.series for item in loaded.series] == ["a:0", "a:1"]
    with pytest.raises(DataError, match="'target': expected lists of numbers or times, got lists of lists"):
        usable(frame.drop(columns=["start", "freq"]))


def test_lists_that_are_not_named_as_values_are_left_out() -> None:
    frame = NESTED.assign(embedding=[np.ones(3), np.ones(3)])
    with pytest.raises(DataError, match="name the columns of values with --value"):
        usable(frame)
    assert [item.series for item in usable(frame, value="target").series] == ["a", "b"]


def test_partitions_that_the_files_also_contain_are_ids(tmp_path: Path) -> None:
    tables = {f"store={n}": pd.DataFrame({"store": n, "day": DAYS, "sold": np.arange(6.0)}) for n in (7, 8)}
    loaded = load_own(write_partitions(tmp_path / "s", tables), name="mine", min_length=None)
    assert_values(loaded, {"7": [*range(6)], "8": [*range(6)]})


def test_partitions_of_csv_files_are_read(tmp_path: Path) -> None:
    for store in (7, 8):
        folder = tmp_path / f"store={store}"
        folder.mkdir()
        pd.DataFrame({"day": DAYS, "sold": np.arange(6.0)}).to_csv(folder / "part-0.csv", index=False)
    (tmp_path / "store=7" / "part-1.csv").touch()
    assert_values(load_own(tmp_path, name="mine", min_length=None), {"7": [*range(6)], "8": [*range(6)]})


def test_years_and_months_of_partitions_are_times_where_tables_have_none(tmp_path: Path) -> None:
    months = pd.period_range("2023-11", periods=14, freq="M")
    tables = {
        f"year={month.year}/month={month.month}": pd.DataFrame({"item_id": ["a"], "y": [float(n)]})
        for n, month in enumerate(months)
    }
    (series,) = load_own(write_partitions(tmp_path / "m", tables), name="mine", min_length=None).series
    assert (series.freq, series.start, series.values.tolist()) == ("MS", datetime(2023, 11, 1), [*range(14)])
    clocks = {
        f"date={day:%Y-%m-%d}": pd.DataFrame({"time": ["00:00", "12:00"], "y": [2.0 * n, 2.0 * n + 1]})
        for n, day in enumerate(DAYS)
    }
    (series,) = load_own(write_partitions(tmp_path / "c", clocks), name="mine", min_length=None).series
    assert (series.freq, series.values.tolist()) == ("12h", [*range(12)])


def test_year_month_and_day_in_columns_are_a_date() -> None:
    months = pd.period_range("2023-11", periods=14, freq="M")
    frame = pd.DataFrame({"year": months.year, "month": months.month, "y": np.arange(14.0)})
    (series,) = read(frame, time=["year", "month"]).series
    assert (series.freq, series.start) == ("MS", datetime(2023, 11, 1))
    hours = pd.date_range("2024-01-30", periods=60, freq="h")
    parts = pd.DataFrame({"year": hours.year, "month": hours.month, "day": hours.day, "hour": hours.hour, "y": 1.0})
    (series,) = read(parts, time=["year", "month", "day", "hour"]).series
    assert (series.freq, series.start) == ("h", datetime(2024, 1, 30))


def test_fractions_of_seconds_since_1970() -> None:
    frame = pd.DataFrame({"ts": 1729814400.5 + np.arange(6), "y": 1.0})
    (series,) = read(frame, time="ts", time_format="s").series
    assert (series.freq, series.start) == ("s", datetime(2024, 10, 25, 0, 0, 0, 500_000))


def test_days_begin_later_where_clocks_skip_midnight() -> None:
    days = pd.date_range("2017-08-01", periods=40)
    (series,) = read(pd.DataFrame({"ds": days, "y": 1.0}), tz="America/Santiago").series
    assert (series.freq, series.start, len(series.values)) == ("D", days[0], 40)


def test_files_that_programs_add_are_not_read(tmp_path: Path) -> None:
    long("a", DAYS).to_csv(tmp_path / "shop.1.csv", index=False)
    long("a", DAYS).to_csv(tmp_path / "shop.2.CSV", index=False)
    for name in ("~$b.xlsx", "._a.csv", ".hidden.csv", "_metadata"):
        (tmp_path / name).write_bytes(b"no table")
    loaded = load_own(tmp_path, name="mine", min_length=None)
    assert [*values_of(loaded)] == ["shop.1.csv:a", "shop.2.CSV:a"]


@pytest.mark.parametrize("beside", [["", "", "a note"], [datetime(2024, 1, 7), 1.0, "", "footer"]])
def test_cells_beside_the_table_of_a_sheet_are_named(tmp_path: Path, beside: list[Any]) -> None:
    rows = [row[:2] for row in TABLE]
    cell = "C8" if len(beside) == 3 else "D8"
    with pytest.raises(
        DataError, match=f"cell {cell} lies beside the table, whose header is row 1 and ends in column B"
    ):
        load_own(workbook(tmp_path / "a.xlsx", {"S": [*rows, beside]}), name="mine")


def test_times_of_several_centuries_are_no_error_of_arithmetic() -> None:
    frame = pd.DataFrame({"ds": pd.to_datetime(["1700-01-01", "2200-01-01"]), "y": [1.0, 2]})
    assert len(read(frame).series[0].values) == 2
    with pytest.raises(DataError, match="expected times within 290 years, got 500 years; leave out --freq D"):
        read(frame, freq="D")


@pytest.mark.parametrize("options", [{"sheet": "x"}, {"duplicates": "sum"}, {"tz": "UTC"}, {"decimal": ","}])
def test_options_that_the_data_cannot_have_are_refused(tmp_path: Path, options: dict[str, Any]) -> None:
    with pytest.raises(ArgumentError, match=f"{next(iter(options))}: expected a table, got arrays"):
        usable(np.arange(60.0), **options)
    if "sheet" in options:
        long("a", DAYS).to_csv(tmp_path / "a.csv", index=False)
        with pytest.raises(DataError, match="--sheet 'x': expected an Excel file"):
            load_own(tmp_path / "a.csv", name="mine", reading=Reading(**options))


def test_a_note_states_the_offset_in_which_times_are_read() -> None:
    hours = pd.date_range("2024-10-26", periods=72, freq="h", tz="Europe/Berlin")
    loaded = read(pd.DataFrame({"ds": [hour.isoformat() for hour in hours], "y": 1.0}))
    assert any("times are read in the offset UTC+02:00 of the first; else set --tz" in note for note in loaded.notes)

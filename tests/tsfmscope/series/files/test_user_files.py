"""One's own files: every layout gives the series that its table says, and what cannot be read is named."""

from __future__ import annotations

import gzip
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tsfmscope.errors import DataError
from tsfmscope.series.files.options import AS_FOUND, Reading
from tsfmscope.series.files.sources import LoadedSeries
from tsfmscope.series.files.times import FREQ_STEPS
from tsfmscope.series.files.user_files import load_own

A, B = np.arange(4.0), np.array([5.0, np.nan, 7.0, 9.0])
TIMES = pd.date_range("2024-01-01", periods=4, freq="D")
WIDE = pd.DataFrame({"date": TIMES, "a": A, "b": B})
LONG = pd.DataFrame({"unique_id": list("xxxxyyyy"), "ds": [*TIMES, *TIMES], "y": [*A, *B]})


def load(path: Path, reading: Reading = AS_FOUND) -> LoadedSeries:
    return load_own(path, name="mine", reading=reading, min_length=2)


def values(path: Path, reading: Reading = AS_FOUND) -> dict[str, list[float | None]]:
    return {one.series: [None if np.isnan(v) else float(v) for v in one.values] for one in load(path, reading).series}


def parquet(frame: pd.DataFrame) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pandas(frame), sink)
    return bytes(sink.getvalue())


AB = {"a": [0, 1, 2, 3], "b": [5, None, 7, 9]}
XY = {"x": [0, 1, 2, 3], "y": [5, None, 7, 9]}
LAYOUTS = {
    "wide csv": ("a.csv", WIDE.to_csv(index=False).encode(), AB),
    "wide csv, times backwards": ("a.csv", WIDE[::-1].to_csv(index=False).encode(), AB),
    "with an index and a byte order mark": ("a.csv", b"\xef\xbb\xbf" + WIDE.to_csv().encode(), AB),
    "semicolons and decimal commas": (
        "a.csv",
        b"when;a;b\n2024-01-01;0,5;5\n2024-01-02;1,5;\n2024-01-03;2;7\n",
        {"a": [0.5, 1.5, 2], "b": [5, None, 7]},
    ),
    "decimal commas beside dates with dots": (
        "a.csv",
        b"when;a;b\n30.01.2024;0,5;5\n31.01.2024;1,5;\n01.02.2024;2;7\n",
        {"a": [0.5, 1.5, 2], "b": [5, None, 7]},
    ),
    "decimal commas between tabs": ("a.tsv", b"a\tb\n1,5\t2\n2,125\t4\n", {"a": [1.5, 2.125], "b": [2, 4]}),
    "decimal commas and a dash": ("a.csv", b"a;b\n1,5;0,5\n-;2\n2,5;4\n", {"a": [1.5, None, 2.5], "b": [0.5, 2, 4]}),
    "tabs": ("a.tsv", b"a\tb\n1\t2\n2\t4\n", {"a": [1, 2], "b": [2, 4]}),
    "bars": ("a.csv", b"a|b\n1|2\n2|4\n", {"a": [1, 2], "b": [2, 4]}),
    "one column, no times": ("a.csv", b"a\n1\n2\n", {"a": [1, 2]}),
    "a count of years is no series": ("a.csv", b"year,flow\n1871,1120\n1872,1160\n", {"flow": [1120, 1160]}),
    "a flag is no series": ("a.csv", b"a,open\n1,True\n2,False\n", {"a": [1, 2]}),
    "gzipped": ("a.csv.gz", gzip.compress(WIDE.to_csv(index=False).encode()), AB),
    "wide parquet": ("a.parquet", parquet(WIDE), AB),
    "parquet with times as its index": ("a.parquet", parquet(WIDE.set_index("date")), AB),
    "parquet with an index of equal labels": ("a.parquet", parquet(WIDE.set_index(pd.Index([0, 0, 0, 0]))), AB),
    "long csv": ("a.csv", LONG.to_csv(index=False).encode(), XY),
    "long csv, rows mixed": ("a.csv", LONG.iloc[[3, 5, 0, 2, 7, 1, 6, 4]].to_csv(index=False).encode(), XY),
    "long parquet with zones": ("a.parquet", parquet(LONG.assign(ds=LONG.ds.dt.tz_localize("Asia/Tokyo"))), XY),
    "ids that are numbers": ("a.csv", b"item_id,ds,target,price\n7,2024-01-01,1,9\n7,2024-01-02,2,9\n", {"7": [1, 2]}),
    "ids keep their zeros": (
        "a.csv",
        b"item_id,timestamp,target\n007,2024-01-01,1.5\n007,2024-01-02,2\n",
        {"007": [1.5, 2]},
    ),
    "a comma in a quoted name": ("a.csv", b'"price, EUR"\n1\n2\n', {"price, EUR": [1, 2]}),
    "a name that stands for a missing value elsewhere": ("a.csv", b"NA,b\n1,2\n2,4\n", {"NA": [1, 2], "b": [2, 4]}),
    "quoted decimal commas": ("a.csv", b'ds,a\n2024-01-01,"0,5"\n2024-01-02,"1,25"\n', {"a": [0.5, 1.25]}),
    "names of days are no ids": ("a.csv", b"ds,a,day\n2024-01-01,1,Mon\n2024-01-02,2,Tue\n", {"a": [1, 2]}),
    "dashes are missing": (
        "a.csv",
        b"ds,a,b\n2024-01-01,1,-\n2024-01-02,2,5\n2024-01-03,4,7\n",
        {"a": [1, 2, 4], "b": [None, 5, 7]},
    ),
    "numbers as names after times": (
        "a.csv",
        b"date,1,2\n2024-01-01,1,3\n2024-01-02,2,5\n",
        {"1": [1, 2], "2": [3, 5]},
    ),
    "the pipeline's own": (
        "a.parquet",
        parquet(pd.DataFrame({"item_id": "q", "start": datetime(2024, 1, 1), "freq": "D", "target": [[1.0, 2.0]]})),
        {"q": [1, 2]},
    ),
}  # fmt: skip


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_layout_gives_the_series_of_its_table(tmp_path: Path, layout: str) -> None:
    name, data, expected = LAYOUTS[layout]
    (tmp_path / name).write_bytes(data)
    assert values(tmp_path / name) == expected
    assert {one.dataset for one in load(tmp_path / name).series} == {"mine"}


@pytest.mark.parametrize(
    ("freq", "expected"), [("h", "h"), ("D", "D"), ("W-SUN", "W-SUN"), ("MS", "MS"), ("15min", "15min")]
)
def test_times_give_the_frequency_and_the_start(tmp_path: Path, freq: str, expected: str) -> None:
    times = pd.date_range("2023-12-31", periods=20, freq=freq)
    pd.DataFrame({"timestamp": times, "a": np.arange(20.0)}).to_csv(tmp_path / "a.csv", index=False)
    (one,) = load(tmp_path / "a.csv").series
    assert (one.freq, one.start) == (expected, times[0].to_pydatetime())


def test_a_series_with_gaps_takes_the_frequency_of_the_others(tmp_path: Path) -> None:
    LONG.drop(index=5).to_csv(tmp_path / "a.csv", index=False)
    assert {one.series: one.freq for one in load(tmp_path / "a.csv").series} == {"x": "D", "y": "D"}


def test_times_that_a_series_lacks_are_missing_values_as_in_the_wide_layout(tmp_path: Path) -> None:
    days = pd.date_range("2023-01-01", periods=90, freq="D")
    long = pd.DataFrame({"unique_id": np.repeat(["a", "b"], 90), "ds": [*days, *days], "y": np.arange(180.0)})
    gap = long.drop(index=range(130, 151))  # of b, 21 days
    gap.to_csv(tmp_path / "long.csv", index=False)
    gap.to_parquet(tmp_path / "long.parquet")
    gap.pivot(index="ds", columns="unique_id", values="y").reset_index().to_csv(tmp_path / "wide.csv", index=False)
    expected = [None if 40 <= day < 61 else 90.0 + day for day in range(90)]
    for name, missing in (("long.csv", {"b": 21}), ("long.parquet", {"b": 21}), ("wide.csv", {})):
        assert values(tmp_path / name) == {"a": [*map(float, range(90))], "b": expected}, name
        found = load(tmp_path / name)
        assert found.missing == missing, name
        assert {(one.freq, one.start) for one in found.series} == {("D", days[0].to_pydatetime())}, name


@pytest.mark.parametrize("freq", ["h", "15min", "B", "W-SUN", "MS", "ME", "YS-JAN"])
def test_the_only_series_of_a_file_shows_its_frequency_beside_its_gaps(tmp_path: Path, freq: str) -> None:
    times = pd.date_range("1990-01-01", periods=60, freq=freq)
    frame = pd.DataFrame({"ds": times, "y": np.arange(60.0)}).drop(index=[7, 30, 31])
    frame.to_csv(tmp_path / "a.csv", index=False)
    assert values(tmp_path / "a.csv") == {"y": [None if step in (7, 30, 31) else float(step) for step in range(60)]}
    (one,) = load(tmp_path / "a.csv").series
    assert (one.freq, load(tmp_path / "a.csv").missing) == (freq, {"y": 3})


def test_a_gap_behind_the_times_that_show_the_frequency_is_seen(tmp_path: Path) -> None:
    times = pd.date_range("2000-01-01", periods=FREQ_STEPS + 50, freq="h").delete(FREQ_STEPS + 20)
    pd.DataFrame({"ds": times, "y": np.arange(float(len(times)))}).to_parquet(tmp_path / "a.parquet")
    (one,) = load(tmp_path / "a.parquet").series
    assert np.flatnonzero(np.isnan(one.values)).tolist() == [FREQ_STEPS + 20]


def test_events_without_a_frequency_stay_as_they_are(tmp_path: Path) -> None:
    seconds = np.unique(np.random.default_rng(0).integers(0, 10**7, 300))
    times = pd.Timestamp("2024-01-01") + pd.to_timedelta([*seconds, *range(10**7, 10**7 + 9)], unit="s")
    pd.DataFrame({"ds": times, "y": np.arange(float(len(times)))}).to_csv(tmp_path / "a.csv", index=False)
    found = load(tmp_path / "a.csv")
    assert not found.missing and found.series[0].freq == ""
    assert found.series[0].values.tolist() == list(range(len(times)))


@pytest.mark.parametrize("freq", ["h", "D"])
@pytest.mark.parametrize("missing", [[], [100]])
def test_times_with_a_zone_cross_the_change_of_clocks(tmp_path: Path, freq: str, missing: list[int]) -> None:
    times = pd.date_range("2024-03-25", "2024-11-05", freq=freq, tz="Europe/Berlin")  # both changes of 2024
    frame = pd.DataFrame({"ds": times, "y": np.arange(float(len(times)))}).drop(index=missing)
    frame.sample(frac=1, random_state=0).to_parquet(tmp_path / "a.parquet")
    (one,) = load(tmp_path / "a.parquet").series
    assert (one.freq, one.start) == (freq, datetime(2024, 3, 25))
    assert np.flatnonzero(np.isnan(one.values)).tolist() == missing
    assert np.delete(one.values, missing).tolist() == frame["y"].tolist()


DAYS = pd.date_range("2024-01-01", periods=60, freq="D")
HOURS = pd.date_range("2024-01-20", periods=60, freq="h")


@pytest.mark.parametrize(
    ("times", "form"),
    [
        *((DAYS, form) for form in ("%d/%m/%Y", "%d.%m.%Y", "%m/%d/%Y", "%m-%d-%Y", "%Y%m%d", "%Y/%m/%d", "%Y-%m-%d")),
        *((HOURS, form) for form in ("%d.%m.%Y %H:%M", "%m/%d/%Y %H:%M:%S", "%Y-%m-%dT%H:%M:%S+00:00", "%s")),
        *((HOURS, f"%s{zeros}") for zeros in ("000", "000000", "000000000")),
        (pd.date_range("1990-01-01", periods=60, freq="YS"), "%Y"),
    ],
)
def test_times_are_those_that_were_written(tmp_path: Path, times: pd.DatetimeIndex, form: str) -> None:
    text = [form.replace("%s", str(int(time.timestamp()))) if "%s" in form else f"{time:{form}}" for time in times]
    pd.DataFrame({"date": text, "a": np.arange(60.0)}).to_csv(tmp_path / "a.csv", index=False)
    (series,) = load(tmp_path / "a.csv").series
    assert (series.freq, series.start) == (times.freqstr, times[0].to_pydatetime())
    assert series.values.tolist() == [*range(60)]


@pytest.mark.parametrize("form", ["%d/%m/%Y", "%m/%d/%Y", "%d %b %Y", "%d.%m.%y", "%d%m%Y"])
def test_the_format_that_the_user_names_decides(tmp_path: Path, form: str) -> None:
    months = pd.date_range("2018-01-01", periods=60, freq="MS")
    pd.DataFrame({"date": months.strftime(form), "a": np.arange(60.0)}).to_csv(tmp_path / "a.csv", index=False)
    (series,) = load(tmp_path / "a.csv", Reading(time="date", time_format=form)).series
    assert (series.freq, series.start) == ("MS", months[0].to_pydatetime())


SHOPS = b"shop,kind,day,sold,price\nn,x,2024-01-01,1,9\ns,x,2024-01-01,5,9\nn,x,2024-01-02,2,8\ns,x,2024-01-02,6,7\n"


@pytest.mark.parametrize(
    ("reading", "expected"),
    [
        (Reading(id="shop", value="sold"), {"n": [1, 2], "s": [5, 6]}),
        (Reading(time="day", id="shop", value=["sold", "price"]), {
            "n:sold": [1, 2], "n:price": [9, 8], "s:sold": [5, 6], "s:price": [9, 7]
        }),
    ],
)  # fmt: skip
def test_the_columns_that_the_user_names_are_read(
    tmp_path: Path, reading: Reading, expected: dict[str, list[float]]
) -> None:
    (tmp_path / "a.csv").write_bytes(SHOPS)
    assert values(tmp_path / "a.csv", reading) == expected


def test_columns_of_values_that_the_user_names_leave_the_others_out(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a,b,c\n1,shut,3\n2,5,5\n3,7,4\n4,9,1\n")
    assert values(tmp_path / "a.csv", Reading(value=("a", "c"))) == {"a": [1, 2, 3, 4], "c": [3, 5, 4, 1]}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("item_id,ds,target,promo\nx,2024-01-01,1,0\nx,2024-01-02,2,1\n",
         "times from 'ds', ids from 'item_id', values from 'target'; not read: 'promo'"),
        ("ds,sales,price\n2024-01-01,1,0\n2024-01-02,2,1\n",
         "times from 'ds', a series from each of 2 of 3 columns ('sales', 'price')"),
        ("a\n1\n2\n", "a series from each of 1 of 1 columns ('a')"),
        (f"step,{','.join(f's{n}' for n in range(8))}\n{','.join('123456789')}\n{','.join('213456789')}\n",
         "a series from each of 8 of 9 columns ('s0', 's1', 's2', 's3', 's4' and 3 more); not read: 'step'"),
    ],
)  # fmt: skip
def test_one_line_says_which_columns_were_read_as_what(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "a.csv").write_text(text)
    assert load_own(tmp_path / "a.csv", name="mine", min_length=1).notes == [f"{tmp_path / 'a.csv'}: {said}"]


def test_a_folder_is_one_data_set_whose_series_say_their_file(tmp_path: Path) -> None:
    WIDE.to_csv(tmp_path / "one.csv", index=False)
    LONG.to_parquet(tmp_path / "two.parquet")
    (tmp_path / "README.md").write_text("not a table")
    assert list(values(tmp_path)) == ["one:a", "one:b", "two:x", "two:y"]


def test_what_cannot_be_used_is_counted_and_a_sample_is_seeded(tmp_path: Path) -> None:
    made = {f"s{n}": np.arange(40.0) * (n + 1) for n in range(9)} | {"flat": np.ones(40), "none": np.full(40, np.nan)}
    pd.DataFrame(made).to_csv(tmp_path / "a.csv", index=False)
    found = load_own(tmp_path / "a.csv", name="mine", sample=(4, 7))
    assert {(one.series, one.reason) for one in found.skipped} == {("flat", "constant"), ("none", "all NaN")}
    assert found.available == 9 and len(found.series) == 4
    again = load_own(tmp_path / "a.csv", name="mine", sample=(4, 7))
    assert [one.series for one in again.series] == [one.series for one in found.series]


@pytest.mark.parametrize(
    ("name", "data", "wrong"),
    [
        ("a.csv", b"", "expected a header with the names of the columns, got .* an empty file"),
        ("a.csv", b"a,b\n1,2\n1,2,3\n", "expected a CSV table .* Line: 3 .* Expected Number of Columns: 2 Found: 3"),
        ("a.csv", b"a,b\n1,\x81\n", "expected a CSV table in UTF-8"),
        ("a.csv", b"ds,y,y\n2024-01-01,1,2\n2024-01-02,2,3\n", "column 'y' occurs twice; rename"),
        ("a.csv", SHOPS, r"column 'day': .* row 2 below the header has 2024-01-01 .* again; name .* with --id"),
        (
            "a.csv",
            b"item_id,date,sales,price,promo\nx,2024-01-01,5,9,0\nx,2024-01-02,6,9,1\n",
            r"one column of values next to the ids in 'item_id', got 'sales', 'price', 'promo'; name it with --value",
        ),
        ("a.csv", b"id,value,y\nx,5,9\nx,6,9\n", r"expected one column of values next to the ids in 'id'"),
        ("a.csv", b"id,series,y\nx,5,9\nx,6,9\n", r"expected one column of ids, got 'id', 'series'; .* --id"),
        ("a.csv", b"shop,sold\nn,1\nn,2\ns,5\ns,6\n", "got text in 'shop'; name .* --time, .* --id, .* --value"),
        ("a.csv", b"date,ds,y\n2024-01-01,2024-01-01,9\n", "expected one column of times, got 'date', 'ds'; .* --time"),
        *(
            ("a.csv", text, "expected a header with the names of the columns, got values in the first row")
            for text in (
                b"2024-01-01,5.5\n2024-01-02,6\n",
                b"01.02.2024 10:00;5,5\n02.02.2024 10:00;6\n",
                b"1.5\n2\n3\n",
                b"store-1,2024-01-01,0.126\nstore-1,2024-01-02,0.2\n",
                b"x,12:00,3\nx,13:00,4\n",
                b"5\n6\n7\n",
                b"2024-01-01T00:00:00,1,3\n2024-01-02T00:00:00,2,4\n",
                b"x,1,2\na,1,1\na,2,2\n",
                b"x,5.25\nx,6\n",
                b"01 Jan 2024,5\n02 Jan 2024,6\n",
                b"01 Jan 2024,5.5\n02 Jan 2024,6\n",
            )
        ),
        ("a.csv", b"a,b\nx,y\n", r"expected a column of numbers, got 'a' \(object\), 'b'"),
        ("a.csv", b"date,a\n2024-01-01,1\n2024-01-01,2\n", "column 'date': .* row 2 below the header has .* again"),
        ("a.csv", b"date,a\n2024-01-01,1\n,2\n", "column 'date': .* row 2 below the header has none"),
        ("a.csv", b"item_id,a\nx,1\n,2\n", "column 'item_id': expected one id per row, got 1 rows without"),
        ("a.csv", b"day,a\n13/01/2024,1\n01/14/2024,2\n", "'day', row 2 below .* got '01/14/2024'; .* --time-format"),
        (
            "a.csv",
            b"day,a\n01/01/2024,1\n01/02/2024,2\n01/03/2024,2\n",
            "'01/02/2024' is 01 February 2024 or 02 January 2024; add --time-format '%d/%m/%Y' or '%m/%d/%Y'",
        ),
        ("a.csv", b"day,a\n13/01/24,1\n14/01/24,2\n", "add --time-format '%d/%m/%y' or '%y/%m/%d'"),
        ("a.csv", b"day,a\n01. Jan,1\n02. Jan,2\n", "got text in 'day'; name the column of times with --time"),
        ("a.csv", b"time,a\n0,1\n1,2\n", "got '0'; .* rename the column to 'step' if it counts the rows"),
        ("a.csv", b"ds,a,b\n2024-01-01,1,1\n2024-01-02,2,shut\n", "'b', row 2 below the header: .* a number.*'shut'"),
        ("a.csv", b'ds,a,b\n2024-01-01,1,"1,100"\n', "'b', row 1 below the header: .* a number.*'1,100'"),
        ("a.tsv", b"a\tb\n991e4009999991,5\t2\n2,1\t4\n", "'a', row 1 below the header: .* a number"),
        ("a.tsv", b"a\tb\n1\t1,100\n2\t2,100\n", "'b', row 1 below the header: .* a number.*'1,100'"),
        ("a.csv", b"date,a\n2024-01-01,1\n2024-01-02,2\nTotal,3\n", "'date', row 3 below.* a time .* got 'Total'"),
        ("a.csv", b"date,a\n2024-01-01,1\n2024-01-02,2\nTotal\n", "Line: 4 Original Line: Total"),
        (
            "a.csv",
            b"day,a\n" + b"".join(b"2024-01-%02d,1\n" % day for day in range(1, 20)) + b"Sum,19\n",
            "'day', row 20 below the header: expected a time.* remove the row",
        ),
        ("a.csv.gz", b"no gzip", "expected a CSV table"),
        ("a.csv.gz", gzip.compress(b"a,b\n1,2\n", mtime=0)[:10] + bytes(range(200, 240)), "expected a CSV table"),
        ("a.parquet", b"PAR1 not at all", "expected a Parquet file"),
        ("a.json", b"{}", "expected a file that ends in"),
        ("folder/none.txt", b"", "the folder contains no file of"),
    ],
)
def test_what_cannot_be_read_is_named_with_what_was_expected(
    tmp_path: Path, name: str, data: bytes, wrong: str
) -> None:
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(data)
    with pytest.raises(DataError, match=wrong) as error:
        load(path.parent if "/" in name else path)
    assert name.split("/")[0] in str(error.value)


def test_files_of_several_frequencies_are_refused(tmp_path: Path) -> None:
    WIDE.to_csv(tmp_path / "one.csv", index=False)
    WIDE.assign(date=pd.date_range("2024-01-01", periods=4, freq="h")).to_csv(tmp_path / "two.csv", index=False)
    with pytest.raises(DataError, match="several frequencies, D, h"):
        load(tmp_path)


@pytest.mark.parametrize(
    ("name", "data", "constant", "said"),
    [
        ("a.parquet", parquet(pd.DataFrame({"a": np.zeros(100_000), "b": np.zeros(100_000)})), 2, "200000 values"),
        ("a.csv.gz", gzip.compress(b"a\n" + b"1\n" * 1_000_000), 1, "1000000 values"),
    ],
)
def test_a_small_file_that_unpacks_to_more_than_the_memory_is_refused_before_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, data: bytes, constant: int, said: str
) -> None:
    (tmp_path / name).write_bytes(data)
    assert len(data) < 10_000
    assert len(load(tmp_path / name).skipped) == constant
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=1_000_000))
    with pytest.raises(DataError, match=f"{name}: unpacks to {said}"):
        load(tmp_path / name)


@settings(max_examples=40, deadline=None)
@given(st.binary(max_size=300))
def test_any_bytes_give_series_or_a_data_error(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    folder = tmp_path_factory.mktemp("bytes")
    for suffix in ("csv", "parquet"):
        path = folder / f"a.{suffix}"
        path.write_bytes(data)
        found, said = [], path.name
        try:
            found = load(path).series
        except DataError as error:
            said = str(error)
        assert path.name in said and all(one.values.ndim == 1 for one in found)

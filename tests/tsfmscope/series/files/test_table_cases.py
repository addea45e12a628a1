"""Tables as users' programs write them are read right, from files and as frames, or refused in one line."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tsfmscope.errors import DataError
from tsfmscope.series.calendar import season_of
from tsfmscope.series.files.options import AS_FOUND, Reading
from tsfmscope.series.files.sources import LoadedSeries, load_parquet, select, series_note
from tsfmscope.series.files.user_files import OURS, load_frame, load_own

STEPS = 60
Y = [round(10 + 3 * float(np.sin(step)) + step % 7 / 4, 3) for step in range(STEPS)]
DAYS = pd.date_range("2024-01-01", periods=STEPS, freq="D")
HOURS = pd.date_range("2024-01-14", periods=STEPS, freq="h")


class Case(NamedTuple):
    """A file and what is right: ids of the series, frequency, time of the first value, and values of the first series.

    skipped: ids that are left out.
    """

    name: str
    data: bytes
    ids: list[str]
    freq: str
    start: str
    values: list[float] = Y
    reading: Reading = AS_FOUND
    skipped: tuple[str, ...] = ()


def cases() -> Iterator[Case]:
    """Yield every case: a table in a shape that users' programs write, with the series that it holds."""
    yield from _index_cases()
    yield from _type_cases()
    yield from _time_cases()
    yield from _zone_cases()
    yield from _id_cases()
    yield from _csv_cases()


def _index_cases() -> Iterator[Case]:
    two = pd.DataFrame(
        {"item_id": ["A"] * STEPS + ["B"] * STEPS, "timestamp": [*DAYS, *DAYS], "target": [*Y, *Y[::-1]]}
    )
    days = ("D", "2024-01-01")
    yield Case("multiindex.parquet", _parquet(two.set_index(["item_id", "timestamp"])), ["A", "B"], *days)
    numbered = two.assign(item_id=[7] * STEPS + [8] * STEPS).rename(columns={"item_id": "store"})
    yield Case("multiindex_of_numbers.parquet", _parquet(numbered.set_index(["store", "timestamp"])), ["7", "8"], *days)
    yield Case("ids_in_the_index.parquet", _parquet(two.set_index("item_id")), ["A", "B"], *days)
    text_index = pd.DataFrame({"y": Y}, index=[f"{day:%Y-%m-%d}" for day in DAYS])
    yield Case("text_dates_in_the_index.parquet", _parquet(text_index[::-1]), ["y"], *days)
    prices = pd.DataFrame({("Close", "AAPL"): Y, ("Open", "AAPL"): Y}, index=pd.Index(DAYS, name="Date"))
    yield Case("multiindex_columns.parquet", _parquet(prices), ["Close:AAPL", "Open:AAPL"], *days)
    yield Case("damaged_pandas_block.parquet", _with_block(two, b"{not json"), ["A", "B"], *days)
    block = b'{"index_columns": ["none"], "columns": [{"name": "target", "kind": 3}]}'
    yield Case("foreign_pandas_block.parquet", _with_block(two, block), ["A", "B"], *days)


def _type_cases() -> Iterator[Case]:
    days = ("D", "2024-01-01")
    table = pd.DataFrame({"item_id": "A", "timestamp": DAYS, "target": Y})
    unused = table.assign(item_id=pd.Categorical(["A"] * STEPS, categories=["A", "B"]))
    yield Case("unused_category.parquet", _parquet(unused), ["A"], *days)
    yield Case("decimal.parquet", _parquet(table.assign(target=[Decimal(str(y)) for y in Y])), ["A"], *days)
    shuffled = pd.DataFrame({"day": DAYS.date, "y": Y}).sample(frac=1, random_state=0)
    yield Case("date32_shuffled.parquet", _parquet(shuffled), ["y"], *days)
    yield Case("dictionary_of_dates.parquet", _parquet(shuffled.astype({"day": "category"})), ["y"], *days)
    quarters = pd.DataFrame({"q": pd.period_range("2000Q1", periods=STEPS, freq="Q"), "y": Y})
    yield Case("periods.parquet", _parquet(quarters), ["y"], "QS-OCT", "2000-01-01")
    for level in (1e8, 1e9, 1e12):
        raised = [y + level for y in Y]
        frame = pd.DataFrame({"ds": DAYS, "y": raised})
        yield Case(f"level_{level:.0e}.csv", frame.to_csv(index=False).encode(), ["y"], *days, raised)
    lists = [np.array(Y) + shift for shift in (0, 1)]
    own = {
        "item_id": pa.array(["A", "B"]), "start": pa.array([DAYS[0]] * 2), "freq": pa.array(["D"] * 2),
        "target": pa.array(lists),
    }  # fmt: skip
    whole = [np.round(values).astype(int) for values in lists]
    yield Case(
        "int_lists.parquet", _arrow(own | {"target": pa.array(whole)}), ["A", "B"], *days, [*map(float, whole[0])]
    )
    view = {name: own[name].cast(pa.string_view()) for name in ("item_id", "freq")}
    yield Case("string_view.parquet", _arrow(own | view), ["A", "B"], *days)
    yield Case(
        "list_view.parquet", _arrow(own | {"target": pa.array(lists, pa.list_view(pa.float64()))}), ["A", "B"], *days
    )
    yield Case("date32_start.parquet", _arrow(own | {"start": own["start"].cast(pa.date32())}), ["A", "B"], *days)
    yield Case("text_start.parquet", _arrow(own | {"start": pa.array(["2024-01-01"] * 2)}), ["A", "B"], *days)
    cents = pa.array([[Decimal(str(y)) for y in Y]] * 2, pa.list_(pa.decimal128(9, 3)))
    yield Case("decimal_lists.parquet", _arrow(own | {"target": cents}), ["A", "B"], *days)


def _time_cases() -> Iterator[Case]:
    hourly = ("h", "2024-01-14")
    minutes = pd.date_range("2024-01-14", periods=STEPS, freq="10min")
    months = pd.date_range("2000-01-01", periods=STEPS, freq="MS")
    weeks = pd.date_range("2023-01-02", periods=STEPS, freq="W-MON")
    quarters = pd.period_range("2000Q1", periods=STEPS, freq="Q")
    yield _wide("yyyymmddhh.csv", HOURS.strftime("%Y%m%d%H"), *hourly)
    yield _wide("yyyymmddhhmm.csv", minutes.strftime("%Y%m%d%H%M"), "10min", "2024-01-14")
    yield _wide("yyyymm.csv", months.strftime("%Y%m"), "MS", "2000-01-01")
    yield _wide("quarters.csv", quarters.strftime("%YQ%q"), "QS-OCT", "2000-01-01")
    yield _wide("quarters_first.csv", [f"Q{q.quarter} {q.year}" for q in quarters], "QS-OCT", "2000-01-01")
    yield _wide("iso_weeks.csv", weeks.strftime("%G-W%V"), "W-MON", "2023-01-02")
    yield _wide("months_of_eurostat.csv", months.strftime("%YM%m"), "MS", "2000-01-01")
    yield _wide("named_months.csv", DAYS.strftime("%d-%b-%y"), "D", "2024-01-01")
    yield _wide("monthly_on_15th.csv", months + pd.Timedelta(days=14), "MS", "2000-01-15")
    sparse = pd.DatetimeIndex(np.random.default_rng(0).choice(pd.date_range("2020-01-01", periods=240), STEPS, False))
    yield _wide("sparse_days.csv", sparse.sort_values(), "", f"{sparse.min():%Y-%m-%d}")
    separate = pd.DataFrame({"Date": HOURS.strftime("%d/%m/%Y"), "Time": HOURS.strftime("%H:%M:%S"), "power": Y})
    text = separate.to_csv(index=False, sep=";").encode()
    yield Case("date_and_time.csv", text, ["power"], *hourly)
    yield Case("date_and_time_named.csv", text, ["power"], *hourly, reading=Reading(time=["Date", "Time"]))
    by_hour = pd.DataFrame({"date": HOURS.date, "hour": HOURS.hour, "power": Y}).to_csv(index=False).encode()
    yield Case("date_and_hour.csv", by_hour, ["power"], *hourly, reading=Reading(time=["date", "hour"]))
    header = pd.DataFrame(
        [Y, Y[::-1]], columns=[f"{day:%Y-%m-%d}" for day in DAYS], index=pd.Index(["p0", "p1"], name="page")
    )
    yield Case("dates_as_header.csv", header.to_csv().encode(), ["p0", "p1"], "D", "2024-01-01")
    years = header.set_axis([str(year) for year in range(1960, 1960 + STEPS)], axis=1)
    yield Case("years_as_header.csv", years.to_csv().encode(), ["p0", "p1"], "YS-JAN", "1960-01-01")


def _zone_cases() -> Iterator[Case]:
    autumn = pd.date_range("2024-10-01", periods=STEPS, freq="D", tz="Europe/Berlin")
    yield _wide("daily_with_offsets.csv", [time.isoformat() for time in autumn], "D", "2024-10-01")
    utc = autumn.tz_convert("UTC")
    yield _wide("daily_in_utc.csv", utc.strftime("%Y-%m-%dT%H:%M:%SZ"), "D", "2024-09-30 22:00")
    local = Reading(tz="Europe/Berlin")
    yield _wide("daily_in_utc_tz.csv", utc.strftime("%Y-%m-%dT%H:%M:%SZ"), "D", "2024-10-01", reading=local)
    for zone, day in (
        ("Europe/Berlin", "2023-10-28"),
        ("America/New_York", "2023-11-04"),
        ("Europe/London", "2023-10-28"),
    ):
        hours = pd.date_range(day, periods=STEPS, freq="h", tz=zone)
        name = f"hourly_with_repeated_hour_{zone.partition('/')[2]}.csv"
        yield _wide(name, hours.strftime("%Y-%m-%d %H:%M:%S"), "h", day)
    hours = pd.date_range("2023-10-28", periods=STEPS, freq="h", tz="Europe/Berlin")
    yield _wide("hourly_tz.csv", hours.strftime("%Y-%m-%d %H:%M:%S"), "h", "2023-10-28", reading=local)
    halves = pd.date_range("2023-10-28 12:00", periods=STEPS, freq="30min", tz="Europe/Berlin").strftime(
        "%Y-%m-%d %H:%M"
    )
    yield _wide("half_hours.csv", halves, "30min", "2023-10-28 12:00")
    backwards = pd.DataFrame({"ds": halves, "y": Y})[::-1].to_csv(index=False).encode()
    yield Case("newest_first.csv", backwards, ["y"], "30min", "2023-10-28 12:00")
    both = pd.DataFrame({"unique_id": ["a"] * STEPS + ["b"] * STEPS, "ds": [*halves, *halves], "y": [*Y, *Y]})
    yield Case("repeated_hour_of_ids.csv", both.to_csv(index=False).encode(), ["a", "b"], "30min", "2023-10-28 12:00")


def _id_cases() -> Iterator[Case]:
    days = ("D", "2024-01-01")
    short = "".join(f"B,{day},5\n" for day in ("2024-01-01", "2024-01-08", "2024-01-15"))
    long = pd.DataFrame({"unique_id": "A", "ds": DAYS, "y": Y}).to_csv(index=False)
    yield Case("one_short_item.csv", (long + short).encode(), ["A"], *days, skipped=("B",))
    every_second = pd.DataFrame(
        {"unique_id": "B", "ds": pd.date_range("2024-01-01", periods=40, freq="2D"), "y": Y[:40]}
    )
    text = long + every_second.to_csv(index=False, header=False)
    yield Case("every_second_day.csv", text.encode(), ["A", "B"], *days)
    weeks = [pd.date_range(first, periods=STEPS, freq="7D") for first in ("2024-01-01", "2024-01-03")]
    weekly = pd.DataFrame({"unique_id": ["A"] * STEPS + ["B"] * STEPS, "ds": [*weeks[0], *weeks[1]], "y": [*Y, *Y]})
    yield Case("weeks_of_two_days.csv", weekly.to_csv(index=False).encode(), ["A", "B"], "W-MON", "2024-01-01")
    stores = [(store, item) for store in (1, 2) for item in (1, 2)]
    rows = [(day, *key, y) for key in stores for day, y in zip(DAYS, Y, strict=True)]
    sales = pd.DataFrame(rows, columns=["date", "store", "item", "sales"]).to_csv(index=False).encode()
    ids = Reading(id=["store", "item"])
    yield Case("two_id_columns.csv", sales, ["1/1", "1/2", "2/1", "2/2"], *days, reading=ids)
    constant = "".join(
        f"{name},{day:%Y-%m-%d},5\n" for name, n in (("short", 20), ("constant", STEPS)) for day in DAYS[:n]
    )
    yield Case("short_and_constant.csv", (long + constant).encode(), ["A"], *days, skipped=("short", "constant"))


def _csv_cases() -> Iterator[Case]:
    days = ("D", "2024-01-01")
    plain = pd.DataFrame({"ds": DAYS, "y": Y}).to_csv(index=False)
    wide = pd.DataFrame({"ds": DAYS, "y": Y, "z": Y}).to_csv(index=False)
    yield Case("comments.csv", ("# station 1\n# metres, above sea\n" + plain).encode(), ["y"], *days)
    yield Case("sep.csv", ("sep=;\n" + plain.replace(",", ";")).encode(), ["y"], *days)
    yield Case("title.csv", ("Daily report\n\n" + plain).encode(), ["y"], *days)
    preamble = '"Data Source","World Development Indicators"\n\n"Last Updated","2024"\n\n'
    yield Case("preamble.csv", (preamble + wide).encode(), ["y", "z"], *days)
    cells = ("<NA>", r"\N", "#DIV/0!", "#VALUE!")
    gaps = plain.splitlines()
    for row, cell in enumerate(cells, start=5):
        gaps[row] = gaps[row].partition(",")[0] + "," + cell
    values = [np.nan if 4 <= step < 4 + len(cells) else y for step, y in enumerate(Y)]
    yield Case("missing_cells.csv", "\n".join(gaps).encode(), ["y"], *days, values)
    german = "".join(
        f"{day:%d.%m.%Y};{f'{y:.3f}'.replace('.', ',')};1.{number + 100},50\n"
        for number, (day, y) in enumerate(zip(DAYS, Y, strict=True))
    )
    header = "Datum;Filiale Köln;Filiale München\n"
    names = ["Filiale Köln", "Filiale München"]
    yield Case("excel_de_thousands.csv", (header + german).encode(), names, *days)
    yield Case("excel_de_cp1252.csv", (header + german).encode("cp1252"), names, *days)
    yield Case("utf16.csv", (header + german).encode("utf-16"), names, *days)
    thousands = [1000 + y for y in Y]
    english = "ds,y\n" + "".join(f'{day:%Y-%m-%d},"{y:,}"\n' for day, y in zip(DAYS, thousands, strict=True))
    yield Case("thousands.csv", english.encode(), ["y"], *days, thousands)


def _wide(name: str, times: Any, freq: str, start: str, reading: Reading = AS_FOUND) -> Case:
    return Case(
        name, pd.DataFrame({"ds": times, "y": Y}).to_csv(index=False).encode(), ["y"], freq, start, reading=reading
    )


def _arrow(columns: dict[str, pa.Array]) -> bytes:
    return _write(pa.table(columns))


def _parquet(frame: pd.DataFrame) -> bytes:
    return _write(pa.Table.from_pandas(frame))


def _with_block(frame: pd.DataFrame, block: bytes) -> bytes:
    return _write(pa.Table.from_pandas(frame).replace_schema_metadata({b"pandas": block}))


def _write(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink)
    return bytes(sink.getvalue())


CASES = list(cases())


def _check(loaded: LoadedSeries, case: Case) -> None:
    assert [item.series for item in loaded.series] == case.ids
    assert tuple(skip.series for skip in loaded.skipped) == case.skipped
    first = loaded.series[0]
    assert (first.freq, first.start) == (case.freq, pd.Timestamp(case.start).to_pydatetime())
    assert first.values.dtype == np.float64
    np.testing.assert_allclose(first.values, case.values, rtol=1e-15)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_table_gives_its_series(tmp_path: Path, case: Case) -> None:
    path = tmp_path / case.name
    path.write_bytes(case.data)
    loaded = load_own(path, name="mine", reading=case.reading)
    _check(loaded, case)
    note = series_note(path, loaded)
    known = f"frequency {case.freq}, season {season_of(loaded.series)}, from {pd.Timestamp(case.start):%Y-%m-%d %H:%M}"
    assert (known if case.freq else "no regular frequency: steps are taken as equally spaced, season 1") in note


@pytest.mark.parametrize("case", [case for case in CASES if case.name.endswith(".parquet")], ids=lambda case: case.name)
def test_a_frame_gives_the_same_series_as_its_file(tmp_path: Path, case: Case) -> None:
    path = tmp_path / case.name
    path.write_bytes(case.data)
    if "pandas_block" in case.name:
        pytest.skip("only pyarrow reads the block")
    frame = pd.read_parquet(path)
    if set(frame) >= OURS:
        _check(select(load_parquet(path)), case)
    else:
        _check(load_frame(frame, name="mine", reading=case.reading), case)


def _frame(**columns: object) -> pd.DataFrame:
    return pd.DataFrame({"y": Y, **columns})


LEVELS = pd.MultiIndex.from_product([["a", "b"], range(30)])


@pytest.mark.parametrize(
    ("frame", "ids"),
    [
        (pd.DataFrame({"y": Y}, index=LEVELS).sample(frac=1, random_state=0).sort_index(level=1), ["a", "b"]),
        (pd.DataFrame({"y": Y}, index=pd.MultiIndex.from_product([["a", "b"], HOURS[:30]])), ["a", "b"]),
        (pd.DataFrame({"y": Y}, index=pd.MultiIndex.from_product([[1, 2], ["x", "z"], DAYS[:15]])),
         ["1/x", "1/z", "2/x", "2/z"]),
        (_frame(day=DAYS.date), ["y"]),
        (_frame(y=pd.Series(Y, dtype=object)), ["y"]),
        (_frame(y=pd.Series([*Y[:-1], None], dtype=object)), ["y"]),
        (_frame(y=pd.Series(Y).astype("category")), ["y"]),
        (_frame(ds=DAYS.to_period("D")), ["y"]),
        (_frame(day=pd.Series(DAYS.date, dtype=pd.ArrowDtype(pa.date32()))).sample(frac=1, random_state=0), ["y"]),
        (_frame(at=pd.Series(DAYS.tz_localize("UTC"), dtype=pd.ArrowDtype(pa.timestamp("us", "UTC")))), ["y"]),
        (_frame(unique_id=[1.0] * 30 + [2.0] * 30, ds=[*DAYS[:30], *DAYS[:30]]), ["1", "2"]),
        (_frame(unique_id=["b"] * 30 + ["a"] * 30, ds=[*DAYS[30:], *DAYS[:30]]), ["b", "a"]),
        (pd.DataFrame({"y": Y}, index=pd.MultiIndex.from_product([["a", "b"], DAYS.date[:30]])), ["a", "b"]),
        (pd.DataFrame({"y": Y}, index=pd.MultiIndex.from_product([["a", "b"], DAYS[:30].strftime("%Y-%m-%d")])),
         ["a", "b"]),
        (pd.DataFrame({"y": Y}, index=pd.MultiIndex.from_product([["a", "b"], HOURS[:30] - HOURS[0]])), ["a", "b"]),
        (pd.DataFrame({"y": Y}, index=pd.Index(HOURS - HOURS[0])).sample(frac=1, random_state=0), ["y"]),
        (pd.DataFrame({"y": Y}, index=pd.Index(range(1950, 2010), name="year")).sample(frac=1, random_state=0), ["y"]),
    ],
)  # fmt: skip
def test_what_pandas_keeps_outside_the_columns_is_read(frame: pd.DataFrame, ids: list[str]) -> None:
    loaded = load_frame(frame, name="mine", min_length=2)
    assert [item.series for item in loaded.series] == ids
    values = np.concatenate([item.values for item in loaded.series])
    np.testing.assert_array_equal(values[:-1], Y[:-1])


@pytest.mark.parametrize(
    ("frame", "reading", "wrong"),
    [
        (_frame(y=np.array(Y) + 1j), AS_FOUND, "'y': expected real numbers, got complex128"),
        (_frame(y=pd.Series([1j] * STEPS, dtype=object)), AS_FOUND, "expected real numbers"),
        (_frame(timestamp=DAYS).set_index(DAYS), AS_FOUND, "column 'timestamp' occurs twice, perhaps in the index"),
        (pd.DataFrame([[1, 2], [3, 4]], columns=["a", "a"]), AS_FOUND, "column 'a' occurs twice"),
        (_frame(ds=DAYS), Reading(value="ds"), "'ds': expected numbers, got datetime64"),
        (_frame(ds=DAYS), Reading(tz="Mars/Olympus"), "--tz 'Mars/Olympus': expected a time zone"),
        (_frame(ds=DAYS.where(DAYS[9] != DAYS, DAYS[8])), AS_FOUND, "row 10 below the header has 2024-01-09 .* again"),
        (_frame(ds=pd.date_range("2024-03-31", periods=STEPS, freq="30min")), Reading(tz="Europe/Berlin"),
         "row 5 below the header: the clocks of Europe/Berlin skip 2024-03-31 02:00"),
        (pd.DataFrame({"id": ["a", "b"], "V1": [1, 2], "V2": [2, 3]}), AS_FOUND, "transpose the table"),
        (pd.DataFrame({"x": ["a/b", "a"], "z": ["c", "b/c"], "y": [1, 2]}), Reading(id=["x", "z"]), "joined with '/'"),
    ],
)  # fmt: skip
def test_a_frame_that_cannot_be_read_is_refused(frame: pd.DataFrame, reading: Reading, wrong: str) -> None:
    with pytest.raises(DataError, match=wrong) as error:
        load_frame(frame, name="mine", reading=reading)
    assert "\n" not in str(error.value)


def test_a_short_series_of_another_frequency_is_left_out_at_any_length(tmp_path: Path) -> None:
    (case,) = (case for case in CASES if case.name == "one_short_item.csv")
    (tmp_path / case.name).write_bytes(case.data)
    loaded = load_own(tmp_path / case.name, name="mine", min_length=None)
    assert [item.series for item in loaded.series] == ["A"]
    assert loaded.skipped == [("B", "under 32 steps, of another frequency")]


def test_digits_that_are_a_date_and_a_number_since_1970_need_a_format(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("ds,y\n" + "".join(f"{2024011400 + hour},{hour % 5}\n" for hour in range(24)))
    with pytest.raises(
        DataError, match=r"2024011400 is 2024-01-14 00:00 or 2034-02-20 .* --time-format '%Y%m%d%H' or 's'"
    ):
        load_own(path, name="mine", min_length=2)
    for form, start in (("%Y%m%d%H", "2024-01-14"), ("s", "2034-02-20 01:23:20")):
        (series,) = load_own(path, name="mine", reading=Reading(time_format=form), min_length=2).series
        assert series.start == pd.Timestamp(start).to_pydatetime()


def test_notes_state_a_skipped_preamble_another_encoding_and_a_change_of_clocks(tmp_path: Path) -> None:
    expected = {
        "title.csv": "the header is line 3",
        "excel_de_cp1252.csv": "not UTF-8, read as cp1252",
        "utf16.csv": "not UTF-8, read as utf-16",
        "hourly_with_repeated_hour_New_York.csv": "the change of clocks in America/New_York; else set --tz",
    }
    for case in CASES:
        if case.name in expected:
            (tmp_path / case.name).write_bytes(case.data)
            notes = load_own(tmp_path / case.name, name="mine").notes
            note = expected.pop(case.name)
            assert any(note in line for line in notes), notes
    assert not expected

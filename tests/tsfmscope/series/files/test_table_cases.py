"""Tables as users' programs write them are read right, from files and as frames, or refused in one line."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from tests.tsfmscope.series.files.table_cases import DAYS, HOURS, STEPS, Case, Y, cases
from tsfmscope.errors import DataError
from tsfmscope.series.calendar import season_of
from tsfmscope.series.files.frames import UNNAMED, Columns
from tsfmscope.series.files.sources import LoadedSeries, load_parquet, select, series_note
from tsfmscope.series.files.user_files import OURS, load_frame, load_own

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
    loaded = load_own(path, name="mine", columns=case.columns)
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
        _check(load_frame(frame, name="mine", columns=case.columns), case)


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
    ("frame", "columns", "wrong"),
    [
        (_frame(y=np.array(Y) + 1j), UNNAMED, "'y': expected real numbers, got complex128"),
        (_frame(y=pd.Series([1j] * STEPS, dtype=object)), UNNAMED, "expected real numbers"),
        (_frame(timestamp=DAYS).set_index(DAYS), UNNAMED, "column 'timestamp' occurs twice, perhaps in the index"),
        (pd.DataFrame([[1, 2], [3, 4]], columns=["a", "a"]), UNNAMED, "column 'a' occurs twice"),
        (_frame(ds=DAYS), Columns(value="ds"), "'ds': expected numbers, got datetime64"),
        (_frame(ds=DAYS), Columns(tz="Mars/Olympus"), "--tz 'Mars/Olympus': expected a time zone"),
        (_frame(ds=DAYS.where(DAYS[9] != DAYS, DAYS[8])), UNNAMED, "row 10 below the header has 2024-01-09 .* again"),
        (_frame(ds=pd.date_range("2024-03-31", periods=STEPS, freq="30min")), Columns(tz="Europe/Berlin"),
         "row 5 below the header: the clocks of Europe/Berlin skip 2024-03-31 02:00"),
        (pd.DataFrame({"id": ["a", "b"], "V1": [1, 2], "V2": [2, 3]}), UNNAMED, "transpose the table"),
        (pd.DataFrame({"x": ["a/b", "a"], "z": ["c", "b/c"], "y": [1, 2]}), Columns(id=["x", "z"]), "joined with '/'"),
    ],
)  # fmt: skip
def test_a_frame_that_cannot_be_read_is_refused(frame: pd.DataFrame, columns: Columns, wrong: str) -> None:
    with pytest.raises(DataError, match=wrong) as error:
        load_frame(frame, name="mine", columns=columns)
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
        (series,) = load_own(path, name="mine", columns=Columns(time_format=form), min_length=2).series
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

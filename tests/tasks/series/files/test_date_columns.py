"""Days and months of a column of dates are read in one order, which the column itself settles."""

from __future__ import annotations

import pandas as pd
import pytest

from tsfmscope.tasks.errors import DataError
from tsfmscope.tasks.series.files.date_columns import parse_numeric_times, parse_times

DAYS = pd.date_range("2024-01-01", periods=120, freq="D")
MONTHS = pd.date_range("2018-01-01", periods=60, freq="MS")
HOURS = pd.date_range("2024-02-01", periods=240, freq="h")  # of ten days, all in one month
FORMS = ["%d/%m/%Y", "%d.%m.%Y", "%d-%m-%Y", "%d/%m/%y", "%m/%d/%Y", "%m/%d/%Y %H:%M", "%d.%m.%Y %H:%M:%S", "%Y-%m-%d"]


def read(text: pd.Series) -> tuple[list[pd.Timestamp], str]:
    times, said = parse_times(text, "a.csv, column 'date'")
    return times.dt.tz_localize(None).to_list(), said


@pytest.mark.parametrize("times", [DAYS, MONTHS, HOURS], ids=["days", "months", "hours"])
@pytest.mark.parametrize("form", FORMS)
def test_times_are_those_that_were_written_in_whatever_order(times: pd.DatetimeIndex, form: str) -> None:
    if times is HOURS and "%H" not in form:
        form += " %H:%M"
    assert read(pd.Series(times.strftime(form))) == (times.to_list(), "")


@pytest.mark.parametrize("times", [DAYS, MONTHS, HOURS], ids=["days", "months", "hours"])
@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_numbers_since_1970_are_times_by_their_size(times: pd.DatetimeIndex, unit: str) -> None:
    numbers = pd.Series(times.as_unit("ns").asi8 // 10 ** {"s": 9, "ms": 6, "us": 3, "ns": 0}[unit])
    found = parse_numeric_times(numbers)
    assert found is not None and found.dt.tz_localize(None).to_list() == times.to_list()


def test_eight_digits_are_a_date_where_all_of_them_are_and_a_missing_one_stays_missing() -> None:
    found = parse_numeric_times(pd.Series([20240131.0, None, 20240229.0]))
    assert found is not None and found.isna().to_list() == [False, True, False]
    assert found.dropna().dt.strftime("%Y-%m-%d").to_list() == ["2024-01-31", "2024-02-29"]
    assert parse_numeric_times(pd.Series([20240131, 20240230])) is None


@pytest.mark.parametrize(
    "numbers", [[], [None], [1, 2, 3], [1990, 1991], [20240131.5, 20240201.0], [1e300, 2e300], [-5, 5]]
)
def test_years_counts_and_fractions_are_no_times(numbers: list[float | None]) -> None:
    assert parse_numeric_times(pd.Series(numbers, dtype=float)) is None


def test_one_day_above_twelve_settles_the_order_of_all_rows() -> None:
    assert read(pd.Series(["03/04/2024", "13/04/2024"]))[0] == [pd.Timestamp(2024, 4, 3), pd.Timestamp(2024, 4, 13)]
    assert read(pd.Series(["03/04/2024", "03/13/2024"]))[0] == [pd.Timestamp(2024, 3, 4), pd.Timestamp(2024, 3, 13)]


def test_iso_dates_among_others_stay_what_they_are() -> None:
    mixed = [f"{one:%Y-%m-%d}" if n % 2 else f"{one:%d/%m/%Y}" for n, one in enumerate(DAYS)]
    assert read(pd.Series(mixed)) == (DAYS.to_list(), "")


def test_both_orders_in_a_column_are_refused_with_a_value_of_each() -> None:
    with pytest.raises(DataError, match=r"a\.csv, column 'date': .*got '13/01/2024' and '01/14/2024'; write dates as"):
        read(pd.Series(["01/01/2024", "13/01/2024", "01/14/2024"]))


def test_times_without_frequency_are_read_in_the_order_that_they_ascend_in() -> None:
    times = pd.DatetimeIndex(["2024-01-07", "2024-02-03", "2024-02-11", "2024-05-02", "2024-06-01", "2024-11-10"])
    for form in ("%d/%m/%Y", "%m/%d/%Y"):
        assert read(pd.Series(times.strftime(form))) == (times.to_list(), "")
        assert read(pd.Series(times[::-1].strftime(form))) == (times[::-1].to_list(), "")


def test_an_order_that_nothing_settles_is_month_first_with_a_word() -> None:
    year = pd.date_range("2024-01-01", periods=12, freq="MS")  # or twelve days of January
    times, said = read(pd.Series(year.strftime("%d/%m/%Y")))
    assert times == pd.date_range("2024-01-01", periods=12, freq="D").to_list()
    assert "read month-first, 01/02/2024 as 2024-01-02" in said


def test_what_is_no_date_is_no_time() -> None:
    times, said = parse_times(pd.Series(["13/14/2024", "31/02/2024", "Total", None, "2024-01-02"]), "a.csv")
    assert times.notna().tolist() == [False, False, False, False, True] and not said


@pytest.mark.parametrize(("year", "expected"), [("68", 2068), ("69", 1969)])
def test_years_of_two_digits_are_those_of_posix(year: str, expected: int) -> None:
    assert read(pd.Series([f"13/01/{year}"]))[0] == [pd.Timestamp(expected, 1, 13)]

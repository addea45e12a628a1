"""Columns of text that are meant as numbers are read so, or refused with the cell that is in the way."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import pytest

from tsfmscope.tasks.errors import DataError
from tsfmscope.tasks.series.files.number_columns import decimal_sign, is_text, to_numbers

WHERE = "a.csv, column 'sold'"


@pytest.mark.parametrize("empty", ["-", "–", "n/a", "N/A", "..", " - ", "?"])
def test_cells_that_stand_for_none_are_missing_and_counted(empty: str) -> None:
    found = to_numbers(pd.Series(["1.5", empty, "2", empty, None]), ".", WHERE)
    assert found is not None
    np.testing.assert_array_equal(found[0], [1.5, np.nan, 2, np.nan, np.nan])
    assert found[1] == f"{WHERE}: 2 cells such as {empty!r} read as missing"


def test_fractions_are_as_the_file_writes_them() -> None:
    found = to_numbers(pd.Series(["1,5", "-", "-2"]), ",", WHERE)
    assert found is not None and found[0].tolist()[::2] == [1.5, -2]
    with pytest.raises(DataError, match=r"row 3 below the header: .* got '1\.500'"):
        to_numbers(pd.Series(["1,5", "2,5", "1.500"]), ",", WHERE)


@pytest.mark.parametrize("cell", ["1,100.5", "1,100", "1 100", "$5", "5 %", "closed"])
def test_another_cell_of_mostly_numbers_is_refused_by_row(cell: str) -> None:
    with pytest.raises(DataError, match=f"a.csv, column 'sold', row 2 below the header: .*'{re.escape(cell)}'"):
        to_numbers(pd.Series(["1", cell, "3", "4"]), ".", WHERE)


def test_a_column_whose_thousands_are_all_grouped_is_refused_and_not_left_out() -> None:
    with pytest.raises(DataError, match=r"row 1 below the header: .*'1,100\.5'; write it as 1100\.5"):
        to_numbers(pd.Series(["1,100.5", "2,200.5"]), ".", WHERE)


@pytest.mark.parametrize(
    "cells", [["n", "s"], ["01.01.2024", "02.01.2024"], ["10:00", "11:00"], ["-", "-"], ["a1", "7"] * 2 + ["b"]]
)
def test_other_text_is_no_number(cells: list[str]) -> None:
    assert to_numbers(pd.Series(cells), ".", WHERE) is None


def test_lists_and_dates_are_no_text() -> None:
    assert [is_text(pd.Series(one)) for one in (["a", None], [[1], [2]], [pd.Timestamp(0).date()], [1.0])] == [
        True, False, False, False,
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("sample", "delimiter", "cut", "expected"),
    [
        ("01.01.2024;0,5\n02.01.2024;1,25\n", ";", False, ","),
        ("01.01.2024;0,5\n02.01", ";", True, ","),  # the last is half a date
        ("2024-01-01;0.5\n2024-01-02;1.5\n", ";", False, "."),
        ('"1,100";0.5\n"2,100";0.5\n"3";0.5\n', ";", False, "."),
        ("1,100;1\n", ";", False, ","),
        ("1,100\t1\n", "\t", False, "."),
        ("1,1\t1\n", "\t", False, ","),
        ('"0,5",1\n', ",", False, "."),
        ("1;2\n", ";", False, "."),
        ("", ";", True, "."),
    ],
)
def test_fields_say_how_fractions_are_written(sample: str, delimiter: str, cut: bool, expected: str) -> None:
    assert decimal_sign(sample, delimiter, is_cut=cut) == expected

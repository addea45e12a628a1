"""Conversion of text columns that contain numbers, such as 1,100.5, or "-" for a missing number."""

from __future__ import annotations

import re

import pandas as pd
from pandas.api import types

from tsfmscope.tasks.errors import DataError

EMPTY = {"", "-", "--", "–", "—", ".", "..", "...", "?", "n/a", "#n/a", "n.a.", "na", "nan", "nil", "none", "null"}
# Numbers with signs, separators and units, such as $1,100.5 or 5 %.
NUMBER = r"[^\w.,-]*[+-]?[^\w.,-]*([0-9]{1,3}([.,'’\s][0-9]{3})+|[0-9]+)([.,][0-9]+)?[^\w.,-]*"
# Share of a column's cells that must look like numbers for it to count as numeric.
MOSTLY = 0.5


def is_text(column: pd.Series) -> bool:
    """Return whether a column contains text, and not lists, dates or other objects that Parquet can hold."""
    return types.infer_dtype(column, skipna=True) in {"string", "categorical", "bytes"}


def to_numbers(column: pd.Series, decimal: str, location: str) -> tuple[pd.Series, str] | None:
    """Convert a text column to numbers; None where fewer than half of its cells look like numbers.

    Returns the numbers, NaN where a cell stands for a missing one, and a note for the user on such cells
    (empty if there are none).

    decimal: decimal sign of the file; location: file and column, for messages.

    Raises:
        DataError: a cell of a column with mostly numbers cannot be read: 1,100 may be 1100 or 1.1.
    """
    text = column.astype("string").str.strip()
    empty = text.str.lower().isin(EMPTY).astype(bool)
    full = column.notna() & ~empty
    like = text.str.fullmatch(NUMBER).fillna(False).astype(bool)
    plain = text if decimal == "." else text.str.translate({ord(decimal): ".", ord("."): "x"})
    parsed = pd.to_numeric(plain.where(full), errors="coerce").astype("Float64")
    bad = full & parsed.isna()
    if not full.any() or (like | parsed.notna())[full].mean() < MOSTLY:
        return None
    if bad.any():
        raise DataError(
            f"{location}, {row_of(bad)}: expected a number, as in most cells, got {column[bad].iloc[0]!r}; write "
            "it as 1100.5, or leave it empty (if the column contains ids, name it item_id)"
        )
    if not (n := int(empty.sum())):
        return parsed.astype(float), ""
    cells = f"{n} {'cell' if n == 1 else 'cells'} such as {column[empty].iloc[0]!r}"
    return parsed.astype(float), f"{location}: {cells} read as missing"


def row_of(bad: pd.Series) -> str:
    """Return the number of the first row where `bad` is true, counted from 1 below the header."""
    return f"row {int(bad.to_numpy().argmax()) + 1} below the header"


def decimal_sign(sample: str, delimiter: str, *, is_cut: bool) -> str:
    """Infer the decimal sign of a CSV sample, "," or ".", from the fields that contain one.

    A field counts only if all of it is a number, because dates may contain dots. Fields such as 1,100 may be
    thousands, so between tabs or | they alone do not show a decimal comma.

    is_cut: whether the sample may end inside a field; its last field is then ignored.
    """
    if delimiter == ",":
        return "."
    fields = [field.strip(' "') for field in re.split(rf"[{re.escape(delimiter)}\n]", sample)]
    if is_cut:
        fields.pop()
    commas = [field for field in fields if re.fullmatch(r"[+-]?[0-9]+,[0-9]+", field)]
    dots = sum(re.fullmatch(r"[+-]?[0-9]+\.[0-9]+", field) is not None for field in fields)
    fraction = any(re.fullmatch(r"[+-]?[1-9][0-9]{0,2},[0-9]{3}", field) is None for field in commas)
    return "," if len(commas) > dots and (fraction or delimiter == ";") else "."

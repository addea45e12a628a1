"""Columns of text that are meant as numbers: "-" for a missing one, or 1,100.5."""

from __future__ import annotations

import re

import pandas as pd
from pandas.api import types

from tasks.errors import DataError

EMPTY = {"", "-", "--", "–", "—", ".", "..", "...", "?", "n/a", "#n/a", "n.a.", "na", "nan", "nil", "none", "null"}
NUMBER = r"[^\w.,-]*[+-]?[^\w.,-]*([0-9]{1,3}([.,'’\s][0-9]{3})+|[0-9]+)([.,][0-9]+)?[^\w.,-]*"  # $1,100.5 or 5 %
MOSTLY = 0.5  # share of its cells that makes a column one of numbers


def is_text(column: pd.Series) -> bool:
    """Of text, and not of lists, dates or whatever else Parquet holds as objects."""
    return types.infer_dtype(column, skipna=True) in {"string", "categorical", "bytes"}


def numbers(column: pd.Series, decimal: str, where: str) -> tuple[pd.Series, str] | None:
    """A column of text as numbers, with a word for people on cells that stand for none; None where it is no such one.

    decimal: the sign that the file writes before fractions; where: file and column. Raises DataError for another cell
    of a column that has mostly numbers: 1,100 may be a thousand or one.
    """
    text = column.astype("string").str.strip()
    empty = text.str.lower().isin(EMPTY).astype(bool)
    full = column.notna() & ~empty
    like = text.str.fullmatch(NUMBER).fillna(False).astype(bool)
    plain = text if decimal == "." else text.str.translate({ord(decimal): ".", ord("."): "x"})
    found = pd.to_numeric(plain.where(full), errors="coerce").astype("Float64")
    bad = full & found.isna()
    if not full.any() or (like | found.notna())[full].mean() < MOSTLY:
        return None
    if bad.any():
        raise DataError(
            f"{where}, {row_of(bad)}: expected a number, as in most of its cells, got {column[bad].iloc[0]!r}; write "
            "it plainly, as 1100.5, or leave it empty (a column of ids: call it item_id)"
        )
    if not (n := int(empty.sum())):
        return found.astype(float), ""
    cells = f"{n} {'cell' if n == 1 else 'cells'} such as {column[empty].iloc[0]!r}"
    return found.astype(float), f"{where}: {cells} read as missing"


def row_of(bad: pd.Series) -> str:
    """The first of these rows, counted as people do."""
    return f"row {int(bad.to_numpy().argmax()) + 1} below the header"


def fractions(sample: str, delimiter: str, *, cut: bool) -> str:
    """The sign before fractions in lines of CSV, by the fields that have one.

    Dates may have dots, and 1,100 between tabs be a thousand. cut: the last field may be cut off.
    """
    if delimiter == ",":
        return "."
    fields = [one.strip(' "') for one in re.split(rf"[{re.escape(delimiter)}\n]", sample)]
    if cut:
        fields.pop()
    commas = [one for one in fields if re.fullmatch(r"[+-]?[0-9]+,[0-9]+", one)]
    dots = sum(re.fullmatch(r"[+-]?[0-9]+\.[0-9]+", one) is not None for one in fields)
    fraction = any(re.fullmatch(r"[+-]?[1-9][0-9]{0,2},[0-9]{3}", one) is None for one in commas)
    return "," if len(commas) > dots and (fraction or delimiter == ";") else "."

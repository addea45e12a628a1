"""Conversion of rows to text (csv, json, markdown, terminal cells) and to Parquet.

Columns are addressed by position, because an SQL result may repeat a name.
"""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections.abc import Iterator, Sequence
from datetime import date, datetime
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from store.errors import QueryError
from tsfmscope.printable import UNPRINTABLE, printable

FORMATS = ("table", "csv", "json", "markdown")


def render(table: pa.Table, form: str, *, terminal: bool = False) -> str:
    r"""Render rows as csv, json or markdown.

    Dates and times are ISO 8601; types and values that Python lacks are DuckDB's own text. In json, NaN and
    infinity are null, and a second column `a` is named `a_1`. In markdown, a line break is <br> and other
    control characters are escaped. In csv, control characters except line breaks and tabs are escaped if
    `terminal` is set, which means that the output goes to a terminal. ValueError for another format.
    """
    rows = list(_rows(table, finite=form == "json"))
    if form == "json":
        names = unique_names(table.column_names)
        objects = [dict(zip(names, row, strict=True)) for row in rows]
        return _escape_unicode(json.dumps(objects, indent=1, ensure_ascii=False))
    if form not in ("csv", "markdown"):
        raise ValueError(f"format {form!r}: expected one of {', '.join(FORMATS[1:])}")
    lines = [table.column_names, *([cell_text(value) for value in row] for row in rows)]
    if form == "markdown":
        return _markdown(lines)
    return _csv([[printable(text, keep="\n\t") for text in line] for line in lines] if terminal else lines)


def cells(table: pa.Table, *, digits: int = 6) -> list[list[str]]:
    """Shorten values for a terminal: floats to `digits` significant digits, lists to their first three items.

    A text of several lines, such as a traceback, becomes its last line. The other formats contain every line.
    """
    return [[printable(_short(value, digits)) for value in row] for row in _rows(table, finite=False)]


def parquet(table: pa.Table) -> bytes:
    """Serialise rows as a Parquet file.

    Repeated column names are numbered as in json. Raises QueryError for a type that Parquet does not have.
    """
    sink = pa.BufferOutputStream()
    try:
        pq.write_table(table.rename_columns(unique_names(table.column_names)), sink)
    except pa.ArrowNotImplementedError as error:
        raise QueryError(f"Parquet has no such type: {error}; cast the column to varchar") from error
    return bytes(sink.getvalue())


def unique_names(names: Sequence[str]) -> list[str]:
    """Number repeated column names: a, a, a becomes a, a_1, a_2; names that exist already are skipped."""
    taken, unique = set(names), []
    seen: set[str] = set()
    for name in names:
        new, number = name, 0
        while new in seen or (number and new in taken):
            number += 1
            new = f"{name}_{number}"
        seen.add(new)
        unique.append(new)
    return unique


def cell_text(value: Any) -> str:
    """Return the value of one cell as text: null is empty, lists and records are JSON."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    return json.dumps(value, ensure_ascii=False) if isinstance(value, list | dict) else str(value)


def _rows(table: pa.Table, *, finite: bool = True) -> Iterator[tuple[Any, ...]]:
    """Return rows of Python values. finite: whether NaN and infinity become None, as JSON requires."""
    columns = [_python_values(column) for column in table.columns]
    if unknown := [index for index, column in enumerate(columns) if column is None]:
        for index, texts in zip(unknown, _duckdb_texts(table, unknown), strict=True):
            columns[index] = texts
    if finite:
        columns = [[to_json(value) for value in column or ()] for column in columns]
    return zip(*(column or () for column in columns), strict=True)


def _python_values(column: pa.ChunkedArray) -> list[Any] | None:
    """Return the Python values of a column.

    Return None if Python lacks the type or a value, such as date 'infinity'.
    """
    if not _has_python_type(column.type):
        return None
    try:
        return [_isoformat(value) for value in column.to_pylist()]
    except (OverflowError, ValueError):
        return None


def _duckdb_texts(table: pa.Table, indices: Sequence[int]) -> list[list[Any]]:
    """Return the columns at these positions as DuckDB's own text."""
    names = [f"c{index}" for index in indices]
    some = pa.table([table.column(index) for index in indices], names)
    with duckdb.connect() as connection:
        lines = connection.from_arrow(some).project(", ".join(f"{name}::varchar" for name in names)).fetchall()
    return [[line[index] for line in lines] for index in range(len(indices))]


def _has_python_type(kind: pa.DataType) -> bool:
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return _has_python_type(kind.value_type)
    if pa.types.is_struct(kind):
        return all(_has_python_type(field.type) for field in kind)
    simple = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean, pa.types.is_decimal, pa.types.is_null)
    text = (pa.types.is_string, pa.types.is_large_string, pa.types.is_date, pa.types.is_timestamp)
    return any(test(kind) for test in (*simple, *text))


def _isoformat(value: Any) -> Any:
    if isinstance(value, datetime | date):
        return value.isoformat()
    if isinstance(value, list):
        return [_isoformat(item) for item in value]
    if isinstance(value, dict):
        return {key: _isoformat(item) for key, item in value.items()}
    return value


def to_json(value: Any) -> Any:
    """Convert a value to one that JSON supports; NaN and infinity become None."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, list):
        return [to_json(item) for item in value]
    if isinstance(value, dict):
        return {key: to_json(item) for key, item in value.items()}
    return value if isinstance(value, str | int | bool) or value is None else str(value)


def _short(value: Any, digits: int) -> str:
    if isinstance(value, float):
        return f"{value:.{digits}g}"
    if isinstance(value, list):
        head = ", ".join(_short(item, 4) for item in value[:3])
        return f"[{head}{f', … {len(value)} items' if len(value) > 3 else ''}]"
    if isinstance(value, str) and len(lines := value.strip().splitlines()) > 1:
        return f"{lines[-1].strip()} (last of {len(lines)} lines)"
    return cell_text(to_json(value)).strip("\r\n")


def _csv(lines: Sequence[Sequence[str]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(lines)
    return text.getvalue().removesuffix("\n")


def _markdown(lines: Sequence[Sequence[str]]) -> str:
    heading, *body = lines
    rule = ["---"] * len(heading)
    return "\n".join(f"| {' | '.join(map(_markdown_cell, line))} |" for line in [heading, rule, *body])


def _markdown_cell(text: str) -> str:
    text = text.replace("\\", "\\\\").replace("|", "\\|")
    return printable(re.sub(r"\r\n|\r|\n", "<br>", text))


def _escape_unicode(text: str) -> str:
    r"""Write DEL, C1 and direction marks in JSON as \uXXXX; json.dumps escapes C0 only."""
    return UNPRINTABLE.sub(lambda match: match[0] if match[0] == "\n" else f"\\u{ord(match[0]):04x}", text)

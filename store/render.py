"""Conversion of rows to text (csv, json, markdown, cells of a terminal) and to Parquet, and files of them.

Columns are addressed by position, because an SQL result may repeat a name.
"""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections.abc import Sequence
from datetime import date, datetime
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from store import files
from tsfmscope.errors import UNPRINTABLE, QueryError, printable


def render(table: pa.Table, form: str, *, terminal: bool = False) -> str:
    r"""Render rows as csv, json or markdown.

    Dates and times are ISO 8601; types and values that Python lacks are DuckDB's own text. In json, NaN and
    infinity are null, and a second column `a` is named `a_1`. In markdown, a line break is <br> and other
    control characters are escaped. In csv, control characters except line breaks and tabs are escaped if
    `terminal` is set, which means that the output goes to a terminal.
    """
    rows = python_rows(table)
    if form == "json":
        names = unique_names(table.column_names)
        objects = [dict(zip(names, map(to_json, row), strict=True)) for row in rows]
        text = json.dumps(objects, indent=1, ensure_ascii=False)
        # json.dumps escapes C0 only, not DEL, C1 and direction marks.
        return UNPRINTABLE.sub(lambda match: match[0] if match[0] == "\n" else f"\\u{ord(match[0]):04x}", text)
    lines = [table.column_names, *([cell_text(value) for value in row] for row in rows)]
    if form == "markdown":
        return markdown(lines)
    if terminal:
        lines = [[printable(text, keep="\n\t") for text in line] for line in lines]
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="\n").writerows(lines)
    return buffer.getvalue().removesuffix("\n")


def short_text(value: Any) -> str:
    """Shorten a value for a terminal: floats to six digits, lists to three items, texts to their last line."""
    return printable(_short(value, 6))


def write(rows: pa.Table, form: str, out: Path) -> None:
    """Write rows to a new file; the format table is written as CSV. Raises QueryError if the file exists."""
    if out.exists():
        raise QueryError(f"--out {out}: the file exists; delete it or choose another name")
    with files.atomic(out) as temporary:
        if form == "parquet":
            temporary.write_bytes(parquet(rows))
        else:
            temporary.write_text(render(rows, "csv" if form == "table" else form) + "\n", encoding="utf-8")


def parquet(table: pa.Table) -> bytes:
    """Serialise rows as a Parquet file; repeated column names are numbered as in json."""
    sink = pa.BufferOutputStream()
    pq.write_table(table.rename_columns(unique_names(table.column_names)), sink)
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


def python_rows(table: pa.Table) -> list[tuple[Any, ...]]:
    """Return rows of Python values; dates and times are ISO 8601."""
    return list(zip(*map(_python_values, table.columns), strict=True))


def _python_values(column: pa.ChunkedArray) -> list[Any]:
    """Return the Python values of a column; DuckDB's texts if Python lacks a value, such as date 'infinity'."""
    try:
        return [_isoformat(value) for value in column.to_pylist()]
    except (OverflowError, ValueError):
        with duckdb.connect() as connection:
            texts = connection.from_arrow(pa.table({"c": column})).project("c::varchar").fetchall()
        return [text for (text,) in texts]


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


def markdown(lines: Sequence[Sequence[str]]) -> str:
    """Return lines of text, of which the first is the heading, as a Markdown table."""
    heading, *body = lines
    rule = ["---"] * len(heading)
    escaped = [[text.replace("\\", "\\\\").replace("|", "\\|") for text in line] for line in [heading, rule, *body]]
    cells = [[printable(re.sub(r"\r\n|\r|\n", "<br>", text)) for text in line] for line in escaped]
    return "\n".join(f"| {' | '.join(line)} |" for line in cells)

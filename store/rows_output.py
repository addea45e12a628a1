"""Output of the rows of one statement: into a new file, or as Parquet to a pipe."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from store import files, render
from store.errors import QueryError


def single(tables: Sequence[pa.Table]) -> pa.Table:
    """Return the rows of the only statement. Raises QueryError if there are several."""
    if len(tables) != 1:
        raise QueryError(
            f"got {len(tables)} statements, expected one: --json, --format parquet and --out take the rows of one"
        )
    return tables[0]


def write(rows: pa.Table, form: str, out: Path) -> None:
    """Write rows to a new file; the format table is written as CSV. Raises QueryError if the file exists."""
    if out.exists():
        raise QueryError(f"--out {out}: the file exists; delete it or choose another name")
    with files.atomic(out) as temporary:
        if form == "parquet":
            temporary.write_bytes(render.parquet(rows))
        else:
            text = render.render(rows, "csv" if form == "table" else form)
            temporary.write_text(text + "\n", encoding="utf-8")


def write_parquet(rows: pa.Table) -> None:
    """Write rows as Parquet to standard output. Raises QueryError if that is a terminal."""
    if sys.stdout.isatty():
        raise QueryError("--format parquet: expected --out FILE, or a pipe; a terminal cannot show it")
    sys.stdout.buffer.write(render.parquet(rows))

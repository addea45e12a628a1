"""Reading of a stage's out: its rows, its failures and its verified dumps."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa

from store import checksums, files
from store.job_rows import summarize_error
from store.schema import arrow_schema
from store.table_folder import parquet_files
from store.table_parts import conform

# Dumps read in parallel.
READS = 8


def read_rows(out: Path, name: str) -> pa.Table:
    """Read all rows of a table of a stage's out, compacted or not; none if it does not exist."""
    schema = arrow_schema(name)
    tables = [conform(files.read_parquet(path), schema) for path in parquet_files(Path(out) / name)]
    return pa.concat_tables(tables or [schema.empty_table()])


def list_failures(data: Path, *, full: bool = False) -> pa.Table:
    """Return the last failure of each job of every stage, including those of unfinished stages.

    data: folder of the stages' outs. full: whole messages and tracebacks instead of one line.
    """
    outs = sorted(path for path in Path(data).glob("[!.]*") if path.is_dir())
    rows = pa.concat_tables([arrow_schema("failures").empty_table(), *(read_rows(out, "failures") for out in outs)])
    last = {key: n for n, key in enumerate(rows["key"].to_pylist())}
    rows = rows.take(pa.array(sorted(last.values()), pa.int64()))
    if full:
        return rows.select(["stage", "task", "error", "message", "spec", "attempts", "transient", "traceback"])
    texts = zip(rows["message"].to_pylist(), rows["traceback"].to_pylist(), strict=True)
    lines = pa.array([summarize_error(message, traceback) for message, traceback in texts], pa.string())
    return rows.select(["stage", "task", "error", "spec"]).add_column(3, "message", lines)


def read_dumps(out: Path) -> list[dict[str, Any]]:
    """Read the rows of a stage's table `dumps`, and verify each dump.

    Raises DamagedFile if a dump is gone or differs from the fingerprint in its row.
    """
    rows: list[dict[str, Any]] = read_rows(out, "dumps").to_pylist()

    def check(row: dict[str, Any]) -> None:
        file, expected = out / row["path"], f"BLAKE3 {row['fingerprint']}"
        try:
            actual = f"BLAKE3 {files.fingerprint(file)}"
        except FileNotFoundError:
            actual = "no such file"
        if actual != expected:
            raise checksums.damaged(file, actual, expected)

    with ThreadPoolExecutor(READS) as pool:
        list(pool.map(check, rows))
    return rows


def dump_files(out: Path, suffix: str) -> list[Path]:
    """Return the dump files of a stage's out with this suffix, sorted by path.

    Raises DamagedFile as `read_dumps` does.
    """
    paths = sorted(row["path"] for row in read_dumps(out))
    return [out / path for path in paths if path.endswith(suffix)]

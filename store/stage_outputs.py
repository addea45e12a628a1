"""Rows of a stage's output: made from the records of jobs, and read again with its failures and verified dumps."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa

from store import files, provenance
from store.schema import arrow_schema, to_arrow
from store.table_parts import ROWS_PER_FILE, conform, parquet_files

Record = Mapping[str, Any]
# Dumps read in parallel.
READS = 8


def failure_row(stage: str, record: Record, error: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row of the table `failures`."""
    row = {"stage": stage, "key": record["key"], "task": record["task"], "spec": record["spec"], "error": error["type"]}
    return row | {name: error[name] for name in ("message", "traceback", "attempts", "transient")}


def summarize_error(message: str, traceback: str) -> str:
    """Summarise an error in one line.

    The summary is the first line of the message, with the next one if the first ends in a colon. Without a
    message, it is the line of code that raised, taken from the traceback.
    """
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    if lines:
        return " ".join(lines[: 1 + lines[0].endswith(":")])
    code = [line.strip() for line in traceback.splitlines() if line.startswith("    ") and line.strip(" ^~")]
    return f"at `{code[-1]}`" if code else ""


def schema_error(error: ValueError) -> dict[str, Any]:
    """Return an error record, in the engine's form, for rows that do not fit their table."""
    return {"type": "SchemaError", "message": str(error), "traceback": "", "attempts": 1, "transient": False}


def timing_row(stage: str, record: Record) -> dict[str, Any]:
    """Return a row of the table `timings`."""
    timing = dict(record["timing"])
    if isinstance(timing["started"], int | float):
        timing["started"] = datetime.fromtimestamp(timing["started"], UTC)
    spec = json.loads(record["spec"])
    subjects = (spec.get(name) for name in ("base_model", "model", "experiment"))
    subject = next((str(value) for value in subjects if value), record["task"])
    return {"stage": stage, "key": record["key"], "task": record["task"], "subject": subject, **timing}


def run_row(stage: str, root: Path, started: datetime, seconds: float) -> dict[str, Any]:
    """Return a row of the table `runs`, with defaults (cpus 1, gpus 0, seed 0) that the stage may replace."""
    origin = {"commit": provenance.commit(root), "versions": provenance.versions(), "hardware": provenance.hardware()}
    row = {"stage": stage, "started": started, "seconds": seconds, **origin, "cpus": 1, "gpus": 0, "seed": 0}
    return row | {"host": socket.gethostname()}


def convert_rows(stage: str, name: str, records: Sequence[Record], failed: list[Record]) -> pa.Table:
    """Convert the rows of all records that fit the table's schema.

    Append a failure to `failed` for each other record.
    """
    try:
        return to_arrow(name, [{**row, "job_key": record["key"]} for record in records for row in record["rows"]])
    except ValueError as error:
        if len(records) == 1:
            failed.append(failure_row(stage, records[0], schema_error(error)))
            return arrow_schema(name).empty_table()
    # Few records do not fit, so halving finds them with fewer conversions than one per record.
    half = len(records) // 2
    return pa.concat_tables(convert_rows(stage, name, some, failed) for some in (records[:half], records[half:]))


def study_tables(stage: str, studies: Mapping[str, Iterable[str]]) -> Iterator[pa.Table]:
    """Yield the table `study_jobs`, sorted, each key once per study, in tables of ROWS_PER_FILE rows."""
    schema = arrow_schema("study_jobs")
    waiting = schema.empty_table()
    for study in sorted(studies):
        keys = sorted(set(studies[study]))
        for start in range(0, len(keys), ROWS_PER_FILE):
            some = keys[start : start + ROWS_PER_FILE]
            columns = {"study": pa.repeat(study, len(some)), "stage": pa.repeat(stage, len(some)), "job_key": some}
            waiting = pa.concat_tables([waiting, pa.table(columns, schema=schema)])
            if len(waiting) >= ROWS_PER_FILE:
                yield waiting.slice(0, ROWS_PER_FILE)
                waiting = waiting.slice(ROWS_PER_FILE)
    if len(waiting):
        yield waiting


def read_rows(out: Path, name: str) -> pa.Table:
    """Read all rows of a table of a stage's out, compacted or not; none if it does not exist."""
    schema = arrow_schema(name)
    tables = [conform(files.read_parquet(path), schema) for path in parquet_files(Path(out) / name)]
    return pa.concat_tables(tables or [schema.empty_table()])


def list_failures(data: Path, *, full: bool = False) -> pa.Table:
    """Return the last failure of each job, also of unfinished stages; full: whole messages and tracebacks."""
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
            raise files.damaged(file, actual, expected)

    with ThreadPoolExecutor(READS) as pool:
        list(pool.map(check, rows))
    return rows


def dump_files(out: Path, suffix: str) -> list[Path]:
    """Return the dump files of a stage's out with this suffix, sorted by path.

    Raises DamagedFile as `read_dumps` does.
    """
    paths = sorted(row["path"] for row in read_dumps(out))
    return [out / path for path in paths if path.endswith(suffix)]

"""Rows for the results of jobs, for the studies that requested them, and for the run."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from tsfmscope.store import provenance
from tsfmscope.store.key_set import unique
from tsfmscope.store.schema import arrow_schema, to_arrow
from tsfmscope.store.table_parts import ROWS_PER_FILE

Record = Mapping[str, Any]


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
    return {
        "stage": stage,
        "started": started,
        "seconds": seconds,
        **origin,
        "cpus": 1,
        "gpus": 0,
        "seed": 0,
        "host": socket.gethostname(),
    }


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


def study_tables(stage: str, studies: Iterable[tuple[str, str | np.ndarray]]) -> Iterator[pa.Table]:
    """Yield the table `study_jobs`, sorted by study and key, in tables of ROWS_PER_FILE rows.

    An iterator must be sorted already; it is consumed in its order, and little more than one table is in
    memory.
    """
    schema = arrow_schema("study_jobs")
    waiting = schema.empty_table()
    for study, job_keys in studies if isinstance(studies, Iterator) else _gathered(studies):
        for start in range(0, len(job_keys), ROWS_PER_FILE):
            keys = pa.array(job_keys[start : start + ROWS_PER_FILE].tolist(), pa.string())
            columns = {"study": pa.repeat(study, len(keys)), "stage": pa.repeat(stage, len(keys))}
            rows = pa.table([(columns | {"job_key": keys})[name] for name in schema.names], schema=schema)
            waiting = pa.concat_tables([waiting, rows])
            if len(waiting) >= ROWS_PER_FILE:
                yield waiting.slice(0, ROWS_PER_FILE)
                waiting = waiting.slice(ROWS_PER_FILE)
    if len(waiting):
        yield waiting


def _gathered(studies: Iterable[tuple[str, str | np.ndarray]]) -> Iterator[tuple[str, np.ndarray]]:
    """Yield each study, sorted by name, and its unique keys, ascending."""
    for study, pairs in groupby(sorted(studies, key=itemgetter(0)), itemgetter(0)):
        yield study, unique(np.concatenate([np.atleast_1d(np.asarray(keys, "S64")) for _, keys in pairs]))

"""Rows of what jobs answered, of the studies that asked for them, and of the run."""

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

from store import provenance
from store.keys import unique
from store.parts import ROWS_PER_FILE
from store.schema import arrow_schema, to_arrow

Record = Mapping[str, Any]


def failure_row(stage: str, record: Record, error: Mapping[str, Any]) -> dict[str, Any]:
    """A row of `failures`."""
    row = {"stage": stage, "key": record["key"], "task": record["task"], "spec": record["spec"], "error": error["type"]}
    return row | {name: error[name] for name in ("message", "traceback", "attempts", "transient")}


def in_a_line(message: str, traceback: str) -> str:
    """What went wrong: a message's first line, with the next where it ends in a colon; else the code that raised."""
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    if lines:
        return " ".join(lines[: 1 + lines[0].endswith(":")])
    code = [line.strip() for line in traceback.splitlines() if line.startswith("    ") and line.strip(" ^~")]
    return f"at `{code[-1]}`" if code else ""


def schema_error(error: ValueError) -> dict[str, Any]:
    """An error like the engine's, of rows that do not fit their table."""
    return {"type": "SchemaError", "message": str(error), "traceback": "", "attempts": 1, "transient": False}


def timing_row(stage: str, record: Record) -> dict[str, Any]:
    """A row of `timings`."""
    timing = dict(record["timing"])
    if isinstance(timing["started"], int | float):
        timing["started"] = datetime.fromtimestamp(timing["started"], UTC)
    spec = json.loads(record["spec"])
    about = (spec.get(name) for name in ("base_model", "model", "experiment"))
    subject = next((str(one) for one in about if one), record["task"])
    return {"stage": stage, "key": record["key"], "task": record["task"], "subject": subject, **timing}


def run_row(stage: str, root: Path, started: datetime, seconds: float) -> dict[str, Any]:
    """A row of `runs`, with 0 and 1 for what the stage knows better."""
    where = {"commit": provenance.commit(root), "versions": provenance.versions(), "hardware": provenance.hardware()}
    return {
        "stage": stage,
        "started": started,
        "seconds": seconds,
        **where,
        "cpus": 1,
        "gpus": 0,
        "seed": 0,
        "host": socket.gethostname(),
    }


def fitting(stage: str, name: str, records: Sequence[Record], failed: list[Record]) -> pa.Table:
    """The rows of the records whose rows fit the table's schema; the others join the failed."""
    try:
        return to_arrow(name, [{**row, "job_key": one["key"]} for one in records for row in one["rows"]])
    except ValueError as error:
        if len(records) == 1:
            failed.append(failure_row(stage, records[0], schema_error(error)))
            return arrow_schema(name).empty_table()
    half = len(records) // 2  # the bad ones are few: halves find them in less than a conversion each
    return pa.concat_tables(fitting(stage, name, some, failed) for some in (records[:half], records[half:]))


def of_studies(stage: str, studies: Iterable[tuple[str, str | np.ndarray]]) -> Iterator[pa.Table]:
    """`studies` by study and key in tables of ROWS_PER_FILE; of a stream, taken as it comes, no more is in memory."""
    schema = arrow_schema("studies")
    waiting = schema.empty_table()
    for study, asking in studies if isinstance(studies, Iterator) else _gathered(studies):
        for start in range(0, len(asking), ROWS_PER_FILE):
            keys = pa.array(asking[start : start + ROWS_PER_FILE].tolist(), pa.string())
            columns = {"study": pa.repeat(study, len(keys)), "stage": pa.repeat(stage, len(keys))}
            some = pa.table([(columns | {"job_key": keys})[name] for name in schema.names], schema=schema)
            waiting = pa.concat_tables([waiting, some])
            if len(waiting) >= ROWS_PER_FILE:
                yield waiting.slice(0, ROWS_PER_FILE)
                waiting = waiting.slice(ROWS_PER_FILE)
    if len(waiting):
        yield waiting


def _gathered(studies: Iterable[tuple[str, str | np.ndarray]]) -> Iterator[tuple[str, np.ndarray]]:
    """Each study, in their order, and its keys, ascending."""
    for study, found in groupby(sorted(studies, key=itemgetter(0)), itemgetter(0)):
        yield study, unique(np.concatenate([np.atleast_1d(np.asarray(keys, "S64")) for _, keys in found]))

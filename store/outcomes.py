"""Rows of what jobs answered beside their own tables."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

Record = Mapping[str, Any]


def failure_row(stage: str, record: Record, error: Mapping[str, Any]) -> dict[str, Any]:
    """A row of `failures`."""
    row = {"stage": stage, "key": record["key"], "task": record["task"], "spec": record["spec"], "error": error["type"]}
    return row | {name: error[name] for name in ("message", "traceback", "attempts", "transient")}


def schema_error(error: ValueError) -> dict[str, Any]:
    """An error like the engine's, of rows that do not fit their table."""
    return {"type": "SchemaError", "message": str(error), "traceback": "", "attempts": 1, "transient": False}


def timing_row(stage: str, record: Record) -> dict[str, Any]:
    """A row of `timings`."""
    timing = dict(record["timing"])
    if isinstance(timing["started"], int | float):
        timing["started"] = datetime.fromtimestamp(timing["started"], UTC)
    return {"stage": stage, "key": record["key"], **timing}

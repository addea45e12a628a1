"""What a store and an execution log contain after a fault."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import faulty

from store import files


def count_rows(root: Path, table: str) -> Counter[str]:
    """Rows of each job in a table. Every visible file must open, and every page is read."""
    key = "key" if table == "failures" else "job_key"
    rows: Counter[str] = Counter()
    for path in sorted((root / "data" / table).glob("[!.]*.parquet")):
        rows.update(files.read_parquet(path)[key].to_pylist())
    return rows


def stored_keys(root: Path) -> set[str]:
    """Keys of the jobs that have rows."""
    return set(count_rows(root, "training")) | set(count_rows(root, "dumps"))


def check_store(root: Path, calls: Sequence[Mapping[str, Any]]) -> set[str]:
    """Require that each job has all its rows once, or one failure; return the keys of the failures."""
    rows, failures = count_rows(root, "training") + count_rows(root, "dumps"), count_rows(root, "failures")
    expected = faulty.expected_rows(faulty.make_jobs(calls))
    assert rows == {key: count for key, count in expected.items() if key not in failures}
    assert set(failures) <= set(expected) and set(failures.values()) <= {1}
    return set(failures)


def logged(log: Path, word: str) -> list[list[str]]:
    """The words after `word` of each line of an execution log that begins with it."""
    lines = log.read_text().splitlines() if log.exists() else []
    return [line.split()[1:] for line in lines if line.split()[:1] == [word]]


def executed(log: Path, start: int = 0) -> list[str]:
    """Keys of the jobs in the order in which they began, without the first `start`."""
    return [key for key, _ in logged(log, "run")[start:]]

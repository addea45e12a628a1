"""A row of the fault matrix, and what a store and an execution log say about it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tsfmscope.store import files

TABLES = ("training", "dumps", "failures")


@dataclass(frozen=True)
class Row:
    """One fault. Lost and doubled are jobs, over all injections.

    survived: injections after which the store came to hold what it should. lost: jobs that were stored, or finished
    longer ago than the flush interval, and had to run again or are missing in the end. doubled: jobs that have a row
    twice, or ran again although they were stored.
    """

    fault: str
    injected: int
    survived: int
    lost: int
    doubled: int
    note: str = ""


def as_table(rows: Iterable[Row]) -> str:
    """The matrix in Markdown."""
    lines = ["| fault | injected | survived | lost | doubled | what happened |"]
    lines += ["| --- | --: | --: | --: | --: | --- |"]
    lines += [f"| {r.fault} | {r.injected} | {r.survived} | {r.lost} | {r.doubled} | {r.note} |" for r in rows]
    return "\n".join(lines)


def rows_of(root: Path, table: str) -> Counter[str]:
    """Rows a job in a table, as a reader without any care finds them: every visible file opens, every page is read."""
    key = "key" if table == "failures" else "job_key"
    found: Counter[str] = Counter()
    for path in sorted((root / "data" / table).glob("[!.]*.parquet")):
        found.update(files.read_parquet(path)[key].to_pylist())
    return found


def stored_keys(root: Path) -> set[str]:
    """Keys of the jobs that have rows."""
    return set(rows_of(root, "training")) | set(rows_of(root, "dumps"))


@dataclass(frozen=True)
class Verdict:
    """What the end of a run looks like."""

    missing: int  # jobs with neither rows nor a failure
    doubled: int  # jobs with more rows than they answered, or with both rows and a failure
    failures: frozenset[str]  # keys


def verdict(root: Path, expected: dict[str, int]) -> Verdict:
    """Hold a finished store against the jobs that it was asked for: key -> rows."""
    rows = rows_of(root, "training") + rows_of(root, "dumps")
    failed = rows_of(root, "failures")
    missing = sum(key not in rows and key not in failed for key in expected)
    over = sum(rows[key] > count or bool(rows[key] and failed[key]) for key, count in expected.items())
    strangers = len((set(rows) | set(failed)) - set(expected))
    return Verdict(missing, over + strangers, frozenset(failed))


def numbers(log: Path, word: str) -> list[list[str]]:
    """The words after `word` of each line of an execution log that begins with it."""
    lines = log.read_text().splitlines() if log.exists() else []
    return [line.split()[1:] for line in lines if line.split()[:1] == [word]]


def count_repeated(before: Sequence[str], ran: Iterable[str]) -> int:
    """How many of the stored jobs ran again."""
    return len(set(before) & set(ran))

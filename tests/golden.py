"""Compare the tables of two results databases value by value, or one with a recorded summary.

    python -m tests.golden compare BEFORE.duckdb AFTER.duckdb [--renamed OLD=NEW ...]
    python -m tests.golden record RESULTS.duckdb smoke|default
    python -m tests.golden spread RESULTS.duckdb OTHER.duckdb [...]

`compare` prints one line for each table or column that differs, and ends with exit code 1 where there is one. It is for
two runs on one machine: rounding differs between CPUs. `record` writes the summary that a slow test compares with.
`spread` adds the differences of runs to TOLERANCES, which the test allows on every CPU. Run one profile on several
CPUs for it, or again with ATEN_CPU_CAPABILITY=avx2, ONEDNN_MAX_CPU_ISA=AVX2, OPENBLAS_CORETYPE=Haswell and
NPY_DISABLE_CPU_FEATURES="AVX512F AVX512_SKX". Job keys, times and places of files are
left out: they may differ where the results are the same.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import json
import math
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import duckdb

from tests.task_versions import tasks

# Profile of params -> the summary of its tables.
RECORDS = {profile: Path(__file__).with_name(f"golden_{profile}.json") for profile in ("smoke", "default")}
# Tables that hold times, versions and keys and nothing else.
LEFT_OUT_TABLES = {*("timings", "runs", "study_jobs", "failures", "timeline", "idle_share", "warm_forecasts")}
# Columns by name, in every table.
LEFT_OUT_COLUMNS = {
    *("job_key", "path", "bytes", "fingerprint", "commit", "versions", "host", "time_ratio", "tokens_per_s", "ended")
}
# Largest difference of a column of doubles that has no line in TOLERANCES, relative to its largest absolute value.
TOLERANCE = 1e-5
# Columns that differ more between CPUs: table, column, measured difference of its numbers, tolerance (five times as
# much), number of nulls that may differ (two, or twice the measured). Counts, keys and texts without a line are
# compared exactly.
TOLERANCES = Path(__file__).with_name("golden_tolerances.csv")
# Numbers in the summary of a column. `signed` is the mean with a sign that depends on the row's texts, so that two rows
# whose values are exchanged are noticed.
NUMBERS = ("least", "most", "mean", "signed")
Summary = dict[str, dict[str, Any]]


def table_names(connection: duckdb.DuckDBPyConnection) -> list[str]:
    """Names of all tables and views that are compared, in alphabetical order."""
    asked = "select table_name from information_schema.tables where table_catalog = current_database() order by 1"
    return [name for (name,) in connection.sql(asked).fetchall() if name not in LEFT_OUT_TABLES]


def column_names(connection: duckdb.DuckDBPyConnection, table: str) -> list[str]:
    """Names of the columns of a table that are compared, in alphabetical order."""
    names = connection.sql(f'select * from "{table}" limit 0').columns
    return sorted(name for name in names if name not in LEFT_OUT_COLUMNS and "second" not in name)


def differences(before: Path, after: Path, renamed: Mapping[str, str]) -> Iterator[str]:
    """Yield one sentence for each table that is missing, has other columns, or has other rows.

    renamed: old name -> new name, of tables and columns alike.
    """
    with duckdb.connect() as connection:
        connection.execute(f"attach '{before}' as old (read_only)")
        connection.execute(f"attach '{after}' as new (read_only)")
        connection.execute("use old")
        old_tables = {renamed.get(name, name): name for name in table_names(connection)}
        old_columns = {new: column_names(connection, old) for new, old in old_tables.items()}
        connection.execute("use new")
        new_tables = set(table_names(connection))
        for name in sorted(set(old_tables) ^ new_tables):
            yield f"{name}: only {'before' if name in old_tables else 'after'}"
        for name in sorted(set(old_tables) & new_tables):
            expected = {renamed.get(column, column): column for column in old_columns[name]}
            found = column_names(connection, name)
            if set(expected) != set(found):
                yield f"{name}: columns differ: {sorted(set(expected) ^ set(found))}"
            both = sorted(set(expected) & set(found))
            floats = _view_floats(connection, name)
            old = ", ".join(_shown(expected[column], column in floats) for column in both)
            new = ", ".join(_shown(column, column in floats) for column in both)
            selected = f'select {old} from old."{old_tables[name]}"', f'select {new} from new."{name}"'
            lost, added = (_count_except(connection, *pair) for pair in (selected, selected[::-1]))
            if lost or added:
                yield f"{name}: {lost} rows only before, {added} only after"


def summarize(database: Path) -> Summary:
    """Return table -> rows, and column -> nulls and a digest of texts or the mean and extremes of numbers."""
    with duckdb.connect(str(database), read_only=True) as connection:
        return {name: _summary(connection, name) for name in table_names(connection)}


def write_record(tables: Summary, profile: str) -> None:
    """Write the record: one line per table, so that a diff names the tables that changed."""
    versions = {name: task.version for name, task in sorted(tasks().items())}
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(tables[name], sort_keys=True)}" for name in sorted(tables))
    RECORDS[profile].write_text(f'{{"versions": {json.dumps(versions)}, "tables": {{\n{lines}\n}}}}\n')


def record_differences(database: Path, profile: str) -> list[str]:
    """Return one sentence per difference between a database and the record of a profile.

    Where a table differs, its sentences end with the tasks whose rows it has: their version must be raised.
    """
    record = json.loads(RECORDS[profile].read_text())
    different = list(summary_differences(record["tables"], summarize(database)))
    for name, task in sorted(tasks().items()):
        table = task.table or name
        if task.version == record["versions"].get(name) and any(re.match(rf"{table}\b", one) for one in different):
            different.append(f"{table}: raise version {task.version} of the task {name}, then record anew")
    return different


def summary_differences(expected: Summary, found: Summary) -> Iterator[str]:
    """Yield one sentence for each difference of two summaries that is above the column's tolerance."""
    allowed = tolerances()
    for name in sorted(set(expected) ^ set(found)):
        yield f"{name}: only {'recorded' if name in expected else 'found'}"
    for name in sorted(set(expected) & set(found)):
        one, other = expected[name], found[name]
        if one["rows"] != other["rows"]:
            yield f"{name}: {one['rows']} rows recorded, {other['rows']} found"
        for column in sorted(set(one["columns"]) | set(other["columns"])):
            old, new = one["columns"].get(column), other["columns"].get(column)
            tolerance = allowed.get((name, column), NO_TOLERANCE)
            if old is None or new is None or not tolerance.holds(old, new):
                yield f"{name}.{column}: {old} recorded, {new} found; allowed {tolerance}"


class Tolerance(NamedTuple):
    """Largest allowed difference of a column, relative to its largest absolute value, and of its number of nulls."""

    numbers: float | None = None
    nulls: int = 0

    def holds(self, old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
        """Return whether two summaries of the column differ by no more than this."""
        if abs(old["nulls"] - new["nulls"]) > self.nulls or ("mean" in old) != ("mean" in new):
            return False
        if "mean" not in old:
            return old.get("digest") == new.get("digest") or self.numbers is not None
        default = 0.0 if old["is_whole"] and new["is_whole"] else TOLERANCE
        return largest_difference(old, new) <= (default if self.numbers is None else self.numbers)


NO_TOLERANCE = Tolerance()


def tolerances() -> dict[tuple[str, str], Tolerance]:
    """Return the tolerances of TOLERANCES by table and column."""
    with TOLERANCES.open() as lines:
        return {
            (line["table"], line["column"]): Tolerance(float(line["tolerance"]), int(line["nulls"]))
            for line in csv.DictReader(lines)
        }


def largest_difference(old: Mapping[str, Any], new: Mapping[str, Any]) -> float:
    """Return the largest difference of two columns' numbers, relative to the largest absolute value."""
    scale = max(abs(summary[name]) for summary in (old, new) for name in ("least", "most"))
    return max(abs(old[name] - new[name]) for name in NUMBERS) / scale if scale else 0.0


def spread(one: Summary, others: Sequence[Summary]) -> dict[tuple[str, str], tuple[float, int]]:
    """Return the largest differences of other summaries by table and column: of numbers, and of the count of nulls.

    Columns that differ by no more than a column without a line in TOLERANCES may are left out.
    """
    measured: dict[tuple[str, str], tuple[float, int]] = {}
    for other in others:
        for name in sorted(set(one) & set(other)):
            for column, old in one[name]["columns"].items():
                new = other[name]["columns"].get(column)
                if new is None or NO_TOLERANCE.holds(old, new):
                    continue
                numbers, nulls = measured.get((name, column), (0.0, 0))
                if "mean" in old and "mean" in new:
                    numbers = max(numbers, largest_difference(old, new))
                measured[name, column] = numbers, max(nulls, abs(old["nulls"] - new["nulls"]))
    return measured


def write_tolerances(measured: Mapping[tuple[str, str], tuple[float, int]]) -> None:
    """Write TOLERANCES: five times the measured differences, or those of earlier lines where they are larger.

    A tolerance of 1 is that of a column whose values depend on the CPU.
    """
    largest = dict(measured)
    with TOLERANCES.open() as lines:
        for line in csv.DictReader(lines):
            key = (line["table"], line["column"])
            numbers, nulls = largest.get(key, (0.0, 0))
            largest[key] = max(numbers, float(line["measured"])), max(nulls, int(line["nulls"]) // 2)
    rows = ["table,column,measured,tolerance,nulls"]
    for (name, column), (numbers, nulls) in sorted(largest.items()):
        tolerance = min(1.0, max(5 * numbers, TOLERANCE))
        rows.append(f"{name},{column},{numbers:.2g},{tolerance:.1g},{max(2, 2 * nulls)}")
    TOLERANCES.write_text("\n".join(rows) + "\n")


def _view_floats(connection: duckdb.DuckDBPyConnection, name: str) -> set[str]:
    """Return the columns of doubles of a view: DuckDB adds in any order, so that their last digits vary."""
    asked = f"select table_type from information_schema.tables where table_name = '{name}' and table_catalog = 'new'"
    if ("BASE TABLE",) in connection.sql(asked).fetchall():
        return set()
    found = connection.sql(f'select * from "{name}" limit 0')
    return {column for column, kind in zip(found.columns, found.types, strict=True) if str(kind) == "DOUBLE"}


def _shown(column: str, is_rounded: bool) -> str:
    return f"""format('{{:.9g}}', "{column}")""" if is_rounded else f'"{column}"'


def _count_except(connection: duckdb.DuckDBPyConnection, one: str, other: str) -> int:
    """Count the rows of the first query that the second lacks, equal rows counted as often as they occur."""
    return int(connection.sql(f"select count(*) from ({one} except all {other})").fetchall()[0][0])


def _summary(connection: duckdb.DuckDBPyConnection, name: str) -> dict[str, Any]:
    columns = column_names(connection, name)
    selected = ", ".join(f'"{column}"' for column in columns)
    values = connection.sql(f'select {selected} from "{name}"').to_arrow_table()
    texts = [values.column(c).to_pylist() for c in columns if str(values.schema.field(c).type) in ("string", "bool")]
    texts = texts or [[""] * values.num_rows]
    signs = [1 - 2 * (hashlib.sha256(repr(row).encode()).digest()[0] & 1) for row in zip(*texts, strict=True)]
    return {"rows": values.num_rows, "columns": {c: _column(values.column(c).to_pylist(), signs) for c in columns}}


def _column(values: Sequence[Any], signs: Sequence[int]) -> dict[str, Any]:
    there = [value for value in values if value is not None]
    summary: dict[str, Any] = {"nulls": len(values) - len(there)}
    if there and all(isinstance(value, int | float) and not isinstance(value, bool) for value in there):
        pairs = zip(values, signs, strict=True)
        finite = [(float(value), sign) for value, sign in pairs if value is not None and math.isfinite(value)]
        if finite:
            plain = [value for value, _ in finite]
            means = {"mean": math.fsum(plain), "signed": math.fsum(value * sign for value, sign in finite)}
            numbers = {"least": min(plain), "most": max(plain)} | {
                name: sum_ / len(plain) for name, sum_ in means.items()
            }
            summary |= {name: float(f"{value:.9g}") for name, value in numbers.items()}
            summary["is_whole"] = all(isinstance(value, int) for value in there)
    elif not any(isinstance(value, float | list | dict) for value in there):
        text = "\n".join(sorted(map(str, there)))
        summary["digest"] = hashlib.sha256(text.encode()).hexdigest()[:16]
    return summary


def main() -> int:
    """Run the command line; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    comparing = commands.add_parser("compare", help="compare two databases value by value")
    comparing.add_argument("before", type=Path)
    comparing.add_argument("after", type=Path)
    comparing.add_argument("--renamed", nargs="*", default=[], metavar="OLD=NEW", help="tables and columns renamed")
    recording = commands.add_parser("record", help="write the summary that the slow test compares with")
    recording.add_argument("database", type=Path)
    recording.add_argument("profile", choices=RECORDS)
    measuring = commands.add_parser("spread", help="add the differences of runs on several CPUs to the tolerances")
    measuring.add_argument("one", type=Path)
    measuring.add_argument("others", type=Path, nargs="+")
    options = parser.parse_args()
    if options.command == "spread":
        write_tolerances(spread(summarize(options.one), [summarize(other) for other in options.others]))
        return 0
    if options.command == "record":
        write_record(summarize(options.database), options.profile)
        return 0
    found = list(differences(options.before, options.after, dict(pair.split("=") for pair in options.renamed)))
    print("\n".join(found) or "equal: every table, value by value")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())

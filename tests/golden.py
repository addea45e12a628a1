"""Compare the tables of two results databases value by value, or one with a recorded summary.

    python -m tests.golden compare BEFORE.duckdb AFTER.duckdb [--renamed OLD=NEW ...]
    python -m tests.golden record RESULTS.duckdb smoke|default|full

`compare` prints one line for each table or column that differs, and ends with exit code 1 where there is one. It is for
two runs on one machine: rounding differs between CPUs. `record` writes the summary that a slow test compares with.
Job keys, versions, times and places of files are left out: they may differ where the results are the same.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import platform
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import duckdb
import torch

# Profile of params -> the summary of its tables.
RECORDS = {profile: Path(__file__).with_name(f"golden_{profile}.json") for profile in ("smoke", "default", "full")}
# Tables that hold times, versions and keys and nothing else.
LEFT_OUT_TABLES = {*("timings", "runs", "study_jobs", "failures", "timeline", "idle_share", "warm_forecasts")}
# Columns by name, in every table.
LEFT_OUT_COLUMNS = {
    *("job_key", "path", "bytes", "fingerprint", "commit", "versions", "host", "time_ratio", "tokens_per_s", "ended")
}
# Relative to a number's scale; two machines with the same CPU differ by less.
TOLERANCE = 1e-6
# Largest difference of a column's nulls between CPUs, as seen between AVX2 and AVX-512: a standard deviation is null if
# K-means finds no clusters in a half of the tokens, and a rank correlation if rounding makes its values equal.
MORE_NULLS = 2
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
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(tables[name], sort_keys=True)}" for name in sorted(tables))
    RECORDS[profile].write_text(f'{{"cpu": {json.dumps(cpu())}, "tables": {{\n{lines}\n}}}}\n')


def record_differences(database: Path, profile: str) -> list[str]:
    """Return one sentence per difference between a database and the record of a profile.

    Other CPUs round otherwise, which can move a row from one cluster to another: there only tables, columns, numbers of
    rows and, approximately, of nulls are compared.
    """
    record = json.loads(RECORDS[profile].read_text())
    return list(summary_differences(record["tables"], summarize(database), numbers=record["cpu"] == cpu()))


def summary_differences(expected: Summary, found: Summary, *, numbers: bool) -> Iterator[str]:
    """Yield one sentence for each difference of two summaries; numbers: whether values are compared too."""
    for name in sorted(set(expected) ^ set(found)):
        yield f"{name}: only {'recorded' if name in expected else 'found'}"
    for name in sorted(set(expected) & set(found)):
        one, other = expected[name], found[name]
        if one["rows"] != other["rows"]:
            yield f"{name}: {one['rows']} rows recorded, {other['rows']} found"
        for column in sorted(set(one["columns"]) | set(other["columns"])):
            old, new = one["columns"].get(column), other["columns"].get(column)
            if old is None or new is None or not _is_equal(old, new, numbers=numbers):
                yield f"{name}.{column}: {old} recorded, {new} found"


def cpu() -> str:
    """Return the CPU's model and torch's vector instructions; machines with both alike give equal results."""
    info = Path("/proc/cpuinfo")
    facts = dict(re.findall(r"(model name|cpu family|model)\s*: (.*)", info.read_text())) if info.exists() else {}
    named = [facts.get("model name", platform.processor()), *(facts.get(name, "") for name in ("cpu family", "model"))]
    return ", ".join([*named, torch.backends.cpu.get_cpu_capability()])


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
    return {"rows": values.num_rows, "columns": {c: _column(values.column(c).to_pylist()) for c in columns}}


def _column(values: Sequence[Any]) -> dict[str, Any]:
    there = [value for value in values if value is not None]
    summary: dict[str, Any] = {"nulls": len(values) - len(there)}
    if there and all(isinstance(value, int | float) and not isinstance(value, bool) for value in there):
        finite = [float(value) for value in there if math.isfinite(value)]
        if finite:
            numbers = {"least": min(finite), "most": max(finite), "mean": math.fsum(finite) / len(finite)}
            summary |= {name: float(f"{value:.9g}") for name, value in numbers.items()}
    elif not any(isinstance(value, float | list | dict) for value in there):
        text = "\n".join(sorted(map(str, there)))
        summary["digest"] = hashlib.sha256(text.encode()).hexdigest()[:16]
    return summary


def _is_equal(old: Mapping[str, Any], new: Mapping[str, Any], *, numbers: bool) -> bool:
    if old.keys() != new.keys() or abs(old["nulls"] - new["nulls"]) > (0 if numbers else MORE_NULLS):
        return False
    if not numbers:
        return True
    if "mean" not in old:
        return old.get("digest") == new.get("digest")
    scale = max(abs(old["least"]), abs(old["most"]))
    return all(math.isclose(old[k], new[k], rel_tol=0, abs_tol=TOLERANCE * scale) for k in ("least", "most", "mean"))


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
    options = parser.parse_args()
    if options.command == "record":
        write_record(summarize(options.database), options.profile)
        return 0
    found = list(differences(options.before, options.after, dict(pair.split("=") for pair in options.renamed)))
    print("\n".join(found) or "equal: every table, value by value")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())

"""Checks generated from the schema: unique keys, ranges, nulls with a reason, and references to other tables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

from store.schema import Column, Table


def generate(tables: Iterable[Table]) -> Iterator[tuple[str, str]]:
    """Yield name and query of each check; a query returns rows that violate the rule in its first line."""
    for table in tables:
        if not table.in_catalogue:
            continue
        if table.key:
            yield f"{table.name}_key", _key(table)
        if ranged := [column for column in table.columns if column.limits]:
            yield f"{table.name}_range", _range(table, ranged)
        if explained := [column for column in table.columns if column.needs_reason]:
            yield f"{table.name}_reason", _reason(table, explained)
        if referring := [column for column in table.columns if column.references]:
            yield f"{table.name}_references", _references(table, referring)


def _key(table: Table) -> str:
    names = _names(table.full_key)
    return (
        f"-- No two rows of {table.name} have the same {', '.join(table.full_key)}.\n"
        f"select {names}, count(*) as n\nfrom {table.name}\ngroup by {names}\nhaving count(*) > 1"
    )


def _range(table: Table, columns: list[Column]) -> str:
    limits = "; ".join(f"{column.name} is {column.limits}" for column in columns)
    violations = []
    for column in columns:
        # The key, or all other columns with short values if the table has no key.
        shown = table.full_key or [c.name for c in table.columns if c is not column and not pa.types.is_list(c.type)]
        value = f'unnest("{column.name}")' if pa.types.is_list(column.type) else f'"{column.name}"'
        violations.append(
            f"select {_names(shown)}, '{column.name}' as column_name, bad_value\n"
            f"from (select *, {value} as bad_value from {table.name})\nwhere {_exceeds(column)}"
        )
    return f"-- In {table.name}, {limits}.\n" + "\nunion all by name\n".join(violations)


def _reason(table: Table, columns: list[Column]) -> str:
    names = ", ".join(column.name for column in columns)
    is_null = " or ".join(
        f'"{column.name}" is null' + (f' or isnan("{column.name}")' if pa.types.is_floating(column.type) else "")
        for column in columns
    )
    columns_shown = _names(dict.fromkeys([*table.full_key, *(column.name for column in columns)]))
    return (
        f"-- A row of {table.name} has a reason if one of these is null: {names}.\n"
        f"select {columns_shown}\nfrom {table.name}\nwhere reason is null and ({is_null})"
    )


def _references(table: Table, columns: list[Column]) -> str:
    rules = "; ".join(
        f"{column.name}{f' (or {column.if_null} where it is null)' if column.if_null else ''} is in "
        f"{' or '.join(column.references)}"
        for column in columns
    )
    return f"-- In {table.name}, {rules}.\n" + "\nunion all\n".join(_unknown(table, column) for column in columns)


def _unknown(table: Table, column: Column) -> str:
    value = f'coalesce("{column.name}", "{column.if_null}")' if column.if_null else f'"{column.name}"'
    known = "\nunion all\n".join(f"select {name} as value from {name.split('.')[0]}" for name in column.references)
    return (
        f"select distinct '{column.name}' as column_name, {value} as bad_value\nfrom {table.name}\n"
        f"where bad_value not in ({known})"
    )


def _exceeds(column: Column) -> str:
    low, high = column.range
    conditions = [] if low is None else [f"bad_value < {low - column.slack!r}"]
    # DuckDB orders NaN above every number, so an upper limit excludes NaN.
    conditions += ["isnan(bad_value::double)"] if high is None else [f"bad_value > {high + column.slack!r}"]
    return " or ".join(conditions)


def _names(names: Iterable[str]) -> str:
    return ", ".join(f'"{name}"' for name in names)

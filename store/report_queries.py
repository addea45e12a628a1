"""Queries of the report: one .sql file each, whose first line is the title and whose parameters are `$NAME`."""

from __future__ import annotations

import difflib
import re
from importlib.resources import files as resources
from typing import NamedTuple

import duckdb

from store import catalogue
from store.errors import StoreError

# Subfolders: `page` for sections of the whole page, `study` for sections of one study, `metrics` for
# `dvc metrics`, `dvc_plots` for `dvc plots`.
ROOT = resources("store") / "sql" / "report"
PARAMETER = re.compile(r"\$(\w+)")
Value = str | int | list[str]


class ReportQuery(NamedTuple):
    """Query of the report with its title. file: where it stands, such as store/sql/report/study/inputs.sql."""

    title: str
    sql: str
    file: str

    def fill(self, **values: Value) -> ReportQuery:
        """Return the query with quoted values in place of its parameters, so that it runs as it stands.

        A list of names becomes a list in brackets. StoreError if a parameter has no value.
        """
        if unknown := sorted(set(PARAMETER.findall(self.sql)) - set(values)):
            raise StoreError(f"{self.file}: unknown parameter ${unknown[0]}, expected ${' or $'.join(values)}")
        return self._replace(sql=PARAMETER.sub(lambda match: _quote(values[match[1]]), self.sql))

    def run(self, connection: duckdb.DuckDBPyConnection) -> duckdb.DuckDBPyRelation:
        """Run the filled query. StoreError, with its file, if DuckDB refuses it."""
        try:
            return connection.sql(self.sql)
        except duckdb.Error as error:
            raise StoreError(f"{self.file} cannot be run: {error}") from error


class ReportQueries(dict[str, ReportQuery]):
    """Queries of a subfolder of store/sql/report by name. StoreError for a name without a file."""

    def __init__(self, folder: str) -> None:
        self.folder = f"store/sql/report/{folder}"
        for name, text in catalogue.queries(ROOT / folder):
            title, sql = catalogue.question(text), text.partition("\n")[2].strip()
            self[name] = ReportQuery(title, sql, f"{self.folder}/{name}.sql")

    def __missing__(self, name: str) -> ReportQuery:
        near = difflib.get_close_matches(name, self, n=1)
        meant = f"; did you mean {near[0]}?" if near else ""
        raise StoreError(f"query {name!r}: expected the file {name}.sql in {self.folder}, found none{meant}")


def load_queries(folder: str) -> ReportQueries:
    """Return name -> query of all .sql files in a subfolder of store/sql/report, sorted by name."""
    return ReportQueries(folder)


def _quote(value: Value) -> str:
    if isinstance(value, list):
        return f"({', '.join(map(_quote, value))})"
    return str(value) if isinstance(value, int) else "'" + value.replace("'", "''") + "'"

"""Queries of the report: one .sql file each, whose first line is the title and whose parameters are `$NAME`."""

from __future__ import annotations

import re
from importlib.resources import files as resources
from typing import NamedTuple

from store import catalogue

# Subfolders: `page` for sections of the whole page, `study` for sections of one study, `metrics` for
# `dvc metrics`, `dvc_plots` for `dvc plots`.
ROOT = resources("store") / "sql" / "report"
PARAMETER = re.compile(r"\$(\w+)")
Value = str | int | list[str]


class ReportQuery(NamedTuple):
    """Query of the report with its title."""

    title: str
    sql: str

    def fill(self, **values: Value) -> ReportQuery:
        """Return the query with quoted values in place of its parameters, so that it runs as it stands.

        A list of names becomes a list in brackets. KeyError if a parameter has no value.
        """
        return self._replace(sql=PARAMETER.sub(lambda match: _quote(values[match[1]]), self.sql))


def load_queries(folder: str) -> dict[str, ReportQuery]:
    """Return name -> query of all .sql files in a subfolder of store/sql/report, sorted by name."""
    return {
        name: ReportQuery(catalogue.question(text), text.partition("\n")[2].strip())
        for name, text in catalogue.queries(ROOT / folder)
    }


def _quote(value: Value) -> str:
    if isinstance(value, list):
        return f"({', '.join(map(_quote, value))})"
    return str(value) if isinstance(value, int) else "'" + value.replace("'", "''") + "'"

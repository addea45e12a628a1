"""Questions of the page and the SQL that answers them."""

from __future__ import annotations

from typing import NamedTuple

# Share of variance of the effective dimension, as in Shelim et al. 2025, Table 1.
EPSILON = 0.8


class Query(NamedTuple):
    """Question and the SQL that answers it; `{study}` and `{epsilon}` are placeholders (see `filled`)."""

    title: str
    sql: str


def filled(query: Query, study: str, epsilon: float = EPSILON) -> Query:
    """Return the query with the quoted study name and epsilon substituted."""
    quoted = "'" + study.replace("'", "''") + "'"
    sql = query.sql.strip()
    for mark, value in {"{epsilon}": repr(float(epsilon)), "{study}": quoted}.items():
        sql = sql.replace(mark, value)
    return Query(query.title, sql)

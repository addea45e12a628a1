"""A question of the page, and the SQL that answers it."""

from __future__ import annotations

from typing import NamedTuple

EPSILON = 0.8  # of the effective dimension, as in isotropy.md, Table 1


class Query(NamedTuple):
    """A question, and the SQL that answers it; `{study}` stands for a quoted name."""

    title: str
    sql: str


def filled(query: Query, study: str, epsilon: float = EPSILON) -> Query:
    """The query with the study's name, quoted, and epsilon written in."""
    quoted = "'" + study.replace("'", "''") + "'"
    sql = query.sql.strip()
    for mark, value in {"{epsilon}": repr(float(epsilon)), "{study}": quoted}.items():
        sql = sql.replace(mark, value)
    return Query(query.title, sql)

"""The questions of docs/sql.md are asked as they stand there."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

from store import catalogue, query

PAGE = Path(__file__).parents[2] / "docs" / "sql.md"
QUESTIONS = re.findall(r"^## (\d+)\. [^\n]*\?$.*?^```sql\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def connection(tmp_path_factory: pytest.TempPathFactory) -> Iterator[duckdb.DuckDBPyConnection]:
    path = tmp_path_factory.mktemp("docs") / "results.duckdb"
    catalogue.build(path, {})
    with query.connect(path) as opened:
        yield opened


def test_there_are_ten_questions() -> None:
    assert [int(number) for number, _ in QUESTIONS] == list(range(1, 11))
    assert len(QUESTIONS) == PAGE.read_text().count("```sql")


@pytest.mark.parametrize("sql", [pytest.param(sql, id=number) for number, sql in QUESTIONS])
def test_a_question_of_the_docs_is_answered(connection: duckdb.DuckDBPyConnection, sql: str) -> None:
    assert query.query(connection, sql).num_columns >= 3

"""The questions of docs/sql.md are asked as they stand there, and docs/tables.md says what the schema does."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

from store import query, reference_docs
from store.schema import TABLES
from tsfmscope.functions import results

PAGE = Path(__file__).parents[2] / "docs" / "sql.md"
QUESTIONS = re.findall(r"^## (\d+)\. [^\n]*\?$.*?^```sql\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def connection(empty_results: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    with results.connect(empty_results) as opened:
        yield opened


def test_there_are_ten_questions() -> None:
    assert [int(number) for number, _ in QUESTIONS] == list(range(1, 11))
    assert len(QUESTIONS) == PAGE.read_text().count("```sql")


@pytest.mark.parametrize("sql", [pytest.param(sql, id=number) for number, sql in QUESTIONS])
def test_a_question_of_the_docs_is_answered(connection: duckdb.DuckDBPyConnection, sql: str) -> None:
    assert query.query(connection, sql).num_columns >= 3


def test_the_page_of_tables_is_what_the_schema_says() -> None:
    page = PAGE.with_name("tables.md").read_text()
    assert page == reference_docs.tables(list(TABLES.values())), "run: python -m docs.building.tables"
    assert all(f"\n## {name}\n" in page for name in TABLES)
    assert "| `correlation` |" in page and "| `geometry_range` |" in page and "| `safe_bound_violated` |" in page

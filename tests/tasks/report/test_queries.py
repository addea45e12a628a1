"""The page's SQL against the catalogue that `store` makes, and the page of a catalogue without rows."""

from __future__ import annotations

import pandas as pd
import pytest

import store
from store import catalogue
from tasks.report.page import render
from tasks.report.queries import QUERIES, queries
from tasks.report.tables import Answer, ReportTables


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> dict[str, pd.DataFrame]:
    """The answer to every query from a catalogue without rows, for a study whose name needs quoting."""
    path = tmp_path_factory.mktemp("store") / "results.duckdb"
    catalogue.build(path, {})
    with store.open(path) as connection:
        return {name: connection.sql(query.sql).df() for name, query in queries("it's {x}").items()}


@pytest.mark.parametrize("name", sorted(QUERIES))
def test_a_query_runs_and_has_the_columns_that_the_made_up_tables_have(
    name: str, empty: dict[str, pd.DataFrame], tables: ReportTables
) -> None:
    assert list(empty[name].columns) == list(getattr(tables, name).frame.columns)


def test_a_catalogue_without_rows_still_gives_a_page(empty: dict[str, pd.DataFrame]) -> None:
    answers = {name: Answer(query.title, query.sql, empty[name]) for name, query in queries("it's {x}").items()}
    islands = Answer("Islands", "-- none", pd.DataFrame())
    page = render(ReportTables(study="it's {x}", profile="default", islands=islands, **answers))
    for words in (
        "0 models on 0 data sets",
        "Nothing was skipped and no job failed",
        "No hidden states",
        "No model was",
    ):
        assert words in page


def test_a_query_shows_its_study_and_epsilon_and_can_be_run_as_it_stands() -> None:
    found = queries("it's", epsilon=0.95)
    assert "where study = 'it''s'" in found["correlation"].sql
    assert "epsilon = 0.95" in found["effective_dimension"].sql
    assert not [name for name, query in found.items() if "{" in query.sql]

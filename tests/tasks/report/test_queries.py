"""The page's SQL against the catalogue that `store` makes, and the page of a catalogue without rows."""

from __future__ import annotations

import duckdb
import pandas as pd
import pytest

from tsfmscope import store
from tsfmscope.store import catalogue
from tsfmscope.tasks.report.page.page import render
from tsfmscope.tasks.report.queries import QUERIES, STUDY_QUERIES, queries, study_queries
from tsfmscope.tasks.report.query import Query
from tsfmscope.tasks.report.tables import Answer, ReportTables, StudyTables


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> dict[str, pd.DataFrame]:
    """The answer to every query from a catalogue without rows, for a study whose name needs quoting."""
    path = tmp_path_factory.mktemp("store") / "results.duckdb"
    catalogue.build(path, {})
    with store.open(path) as connection:
        asked = queries("it's {x}") | study_queries("it's {x}")
        return {name: connection.sql(query.sql).df() for name, query in asked.items()}


@pytest.mark.parametrize("name", sorted(QUERIES))
def test_a_query_runs_and_has_the_columns_that_the_made_up_tables_have(
    name: str, empty: dict[str, pd.DataFrame], tables: ReportTables
) -> None:
    assert list(empty[name].columns) == list(getattr(tables, name).frame.columns)


@pytest.mark.parametrize("name", sorted(STUDY_QUERIES))
def test_a_query_of_a_study_has_the_columns_that_the_made_up_studies_have(
    name: str, empty: dict[str, pd.DataFrame], tables: ReportTables
) -> None:
    assert list(empty[name].columns) == list(getattr(tables.studies[0], name).frame.columns)


def test_forecasts_without_a_score_are_not_said_to_be_scored() -> None:
    with duckdb.connect() as connection:
        connection.sql("create table baselines (model varchar)")
        connection.sql(
            """create table forecasts as
            select 's' as study, 'm' as model, 'd' as dataset, 'c' as condition, * from (
                values ('scored', 0.5), ('scored', 0.4), ('not', null)
            ) as found (series, nmse)"""
        )
        assert connection.sql(queries("s")["scope"].sql).fetchall() == [(1, 1, 1, 2, 1)]


def test_a_catalogue_without_rows_still_gives_a_page(empty: dict[str, pd.DataFrame]) -> None:
    def answers(asked: dict[str, Query]) -> dict[str, Answer]:
        return {name: Answer(query.title, query.sql, empty[name]) for name, query in asked.items()}

    states = Answer("Islands", "-- none", pd.DataFrame())
    kinds = ("domains", "conditions", "islands", "dimension", "none")
    studies = tuple(
        StudyTables(kind, kind, None, kind, ("c",), states=states, **answers(study_queries(kind))) for kind in kinds
    )
    page = render(ReportTables("it's {x}", "default", **answers(queries("it's {x}")), studies=studies))
    for words in ("0 models on 0 data sets", "Nothing was skipped and no job failed", "No model was"):
        assert words in page
    assert page.count("Nothing of this study is at hand") == len(kinds)


def test_a_query_shows_its_study_and_epsilon_and_can_be_run_as_it_stands() -> None:
    found = queries("it's") | study_queries("it's", epsilon=0.95)
    assert "where study = 'it''s'" in found["correlation"].sql
    assert "epsilon = 0.95" in found["layers"].sql
    assert not [name for name, query in found.items() if "{" in query.sql]

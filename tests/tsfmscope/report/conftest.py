"""The report's tables of a recorded smoke run, and the same with hostile names."""

from __future__ import annotations

from collections.abc import Iterator

import duckdb
import pytest

import store
from stages.planning.inference import infer
from stages.planning.population_tests import Hypothesis
from store import catalogue
from store.schema import arrow_schema
from tests.population import HYPOTHESIS, QUICK, population_tables
from tests.store.conftest import open_results, valid_row
from tests.tsfmscope.report import recorded
from tsfmscope.report.page.page import render
from tsfmscope.report.tables import ReportTables

# Runs if anything reads it as HTML, as JavaScript or as a template.
HOSTILE = "<img src=x onerror=window.hacked=1></script><b>%{x}"
NAMES = ("model", "base_model", "dataset", "series")


def make_hostile() -> list[str]:
    """Return SQL that appends HOSTILE to every name of a model, data set and series; METHOD of BASE@METHOD stays."""
    columns = [(table, name) for table in recorded.names() for name in NAMES if name in arrow_schema(table).names]
    return [f"update {table} set {name} = regexp_replace({name}, '^[^@]+', '\\0{HOSTILE}')" for table, name in columns]


@pytest.fixture(scope="session")
def connection() -> Iterator[duckdb.DuckDBPyConnection]:
    """The recorded database."""
    with recorded.build() as opened:
        yield opened


@pytest.fixture(scope="session")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[duckdb.DuckDBPyConnection]:
    """A catalogue without rows."""
    path = tmp_path_factory.mktemp("store") / "results.duckdb"
    catalogue.build(path, {})
    with store.open(path) as opened:
        yield opened


@pytest.fixture(scope="session")
def population(tmp_path_factory: pytest.TempPathFactory) -> Iterator[duckdb.DuckDBPyConnection]:
    """Study `s` of a population of six trainings with four snapshots each, two hypotheses, and their tests."""
    tables = population_tables()
    for row in tables["geometry"]:
        row["zeta_adjusted_corrected"] = -row["zeta"]
    tables["alignment"] = [
        valid_row("alignment") | {"model": row["model"], "job_key": f"a{row['model']}"} for row in tables["checkpoints"]
    ]
    tables["study_jobs"] += [{"study": "s", "stage": "heads", "job_key": row["job_key"]} for row in tables["alignment"]]
    measures = ("zeta_adjusted_corrected", "zeta")
    hypotheses = [Hypothesis.model_validate(HYPOTHESIS | {"name": name, "measure": name}) for name in measures]
    claims = [claim.model_dump() | {"statistic": "spearman", "commit": "c"} for claim in hypotheses]
    with open_results(tmp_path_factory.mktemp("units"), tables) as connection:
        inference = infer(connection, QUICK, hypotheses)
    whole = tables | {"inference": inference, "hypotheses": claims}
    with open_results(tmp_path_factory.mktemp("population"), whole) as opened:
        yield opened


@pytest.fixture(scope="session")
def tables(connection: duckdb.DuckDBPyConnection) -> ReportTables:
    """The answers of the recorded run."""
    return recorded.answer_report(connection)


@pytest.fixture(scope="session")
def page(tables: ReportTables) -> str:
    """The page of the recorded run."""
    return render(tables)


@pytest.fixture(scope="session")
def hostile() -> ReportTables:
    """The same with names that would run if anything read them as HTML or as a template."""
    tokens = recorded.islands()
    tokens = tokens.assign(**{name: tokens[name] + HOSTILE for name in NAMES if name in tokens})
    with recorded.build(*make_hostile()) as opened:
        return recorded.answer_report(opened, tokens)

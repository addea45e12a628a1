"""The page's SQL against the catalogue that `store` makes, and the page of a catalogue without rows."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

from store import report_queries
from store.errors import StoreError
from store.report_queries import PARAMETER, ReportQuery, Value, load_queries
from tests.tsfmscope.report.recorded import answer_study
from tsfmscope.report.page.page import render
from tsfmscope.report.plots import describe_plot, load_plot, plot_names
from tsfmscope.report.tables import Answer, ReportTables

STUDY = "it's {x}"
NAMES: dict[str, list[str]] = {"models": ["a"], "datasets": ["b", "it's"], "conditions": ["c"]}
VALUES: dict[str, Value] = {"study": STUDY, **NAMES, "layer": "last", "tokens": 400}


def fill_all(folder: str) -> dict[str, ReportQuery]:
    return {name: query.fill(**VALUES) for name, query in load_queries(folder).items()}


@pytest.mark.parametrize("plot", plot_names())
def test_a_plot_has_a_description_and_its_queries_have_the_columns_that_it_reads(
    plot: str, empty: duckdb.DuckDBPyConnection
) -> None:
    assert describe_plot(plot)[0].isupper()
    for name, columns in load_plot(plot).queries.items():
        if name != "islands":  # its rows are computed from the files that the query lists
            assert set(columns) <= set(empty.sql(fill_all("study")[name].sql).columns)


def test_every_query_of_a_study_is_read_by_a_plot_or_by_every_section() -> None:
    by_plots = {query for plot in plot_names() for query in load_plot(plot).queries}
    assert set(load_queries("study")) == by_plots | {"published", "rank_tests", "errors"}


def test_forecasts_without_a_score_are_not_said_to_be_scored() -> None:
    with duckdb.connect() as connection:
        connection.sql("create table baselines (model varchar)")
        connection.sql(
            """create table forecasts as
            select 's' as study, 'm' as model, 'd' as dataset, 'c' as condition, * from (
                values ('scored', 0.5), ('scored', 0.4), ('not', null)
            ) as found (series, nmse)"""
        )
        assert connection.sql(load_queries("page")["scope"].fill(study="s").sql).fetchall() == [(1, 1, 1, 2, 1)]


def test_a_catalogue_without_rows_still_gives_a_page(empty: duckdb.DuckDBPyConnection) -> None:
    answers = {
        name: Answer(query.title, query.sql, empty.sql(query.sql).df()) for name, query in fill_all("page").items()
    }
    kinds = plot_names()
    studies = tuple(answer_study(empty, kind, kind) for kind in kinds)
    page = render(ReportTables(STUDY, "default", **answers, studies=studies))
    for words in ("0 models on 0 data sets", "Nothing was skipped and no job failed"):
        assert words in page
    assert page.count("This study has no results") == len(kinds)


def test_a_filled_query_shows_its_values_and_runs_as_it_stands(empty: duckdb.DuckDBPyConnection) -> None:
    assert "where study = 'it''s {x}'" in fill_all("page")["correlation"].sql
    islands = fill_all("study")["islands"]
    assert "dataset in ('b', 'it''s')" in islands.sql
    assert "400 random ones" in islands.sql
    assert empty.sql(islands.sql).columns == ["path"]
    queries = {**fill_all("page"), **fill_all("study")}
    assert not [name for name, query in queries.items() if PARAMETER.search(query.sql)]


@pytest.mark.parametrize("query", ["checkpoints", "nmse_against_isotropy", "alignment"])
def test_the_page_lists_the_last_weights_of_a_population_and_no_snapshot(
    query: str, population: duckdb.DuckDBPyConnection
) -> None:
    frame = population.sql(load_queries("page")[query].fill(study="s").sql).df()
    assert set(frame["model"]) == {f"r{run}" for run in range(6)}
    if query == "checkpoints":
        assert frame["snapshots"].tolist() == [3] * 6


def test_errors_metrics_and_plots_of_dvc_leave_snapshots_of_a_population_out(
    population: duckdb.DuckDBPyConnection,
) -> None:
    queries = {"errors": load_queries("study")["errors"], "isotropy": load_queries("metrics")["isotropy"]}
    queries |= {"error_against_isotropy": load_queries("dvc_plots")["error_against_isotropy"]}
    for name, query in queries.items():
        frame = population.sql(query.fill(study="s").sql).df()
        models = set(frame["line" if "line" in frame else "model"])
        assert models == {f"r{run}" for run in range(6)}, name


def test_errors_name_the_file_of_the_query(
    empty: duckdb.DuckDBPyConnection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "study").mkdir()
    (tmp_path / "study" / "sizes.sql").write_text("-- Sizes\nselect model, size\nfrom checkpoints\nwhere model = $name")
    monkeypatch.setattr(report_queries, "ROOT", tmp_path)
    queries = load_queries("study")
    with pytest.raises(StoreError, match=r"expected the file size\.sql in store/sql/report/study, .* mean sizes\?"):
        queries["size"]
    with pytest.raises(StoreError, match=r"report/study/sizes\.sql: unknown parameter \$name, expected \$study"):
        queries["sizes"].fill(study="s")
    with pytest.raises(StoreError, match=r"report/study/sizes\.sql cannot be run: .*size"):
        queries["sizes"].fill(name="s").run(empty)
    (tmp_path / "study" / "sizes.sql").write_text("select model from checkpoints")
    with pytest.raises(StoreError, match=r"study/sizes\.sql: expected the question as first line, .* 'select model"):
        load_queries("study")

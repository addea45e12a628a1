"""Tables of a study, answered by the report's own SQL."""

from __future__ import annotations

from dataclasses import replace

import duckdb
import pandas as pd

from tsfmscope.store.report_queries import ReportQuery, load_queries
from tsfmscope.tasks.report.plot import load_plot
from tsfmscope.tasks.report.tables import Answer, StudyTables


def answer_study(
    connection: duckdb.DuckDBPyConnection, name: str, plot: str, figure: str | None, title: str
) -> StudyTables:
    """Run the queries of a study."""
    queries = load_queries("study")

    def answer(query: ReportQuery) -> Answer:
        filled = query.fill(study=name, models=[], datasets=[], conditions=[], layer="last", tokens=400)
        return Answer(filled.title, filled.sql, connection.sql(filled.sql).df())

    return StudyTables(
        name,
        title,
        figure,
        plot,
        ("c",),
        answer(queries["published"]),
        {query: answer(queries[query]) for query in load_plot(plot).queries},
        answer(queries["rank_tests"]) if load_plot(plot).has_rank_tests else None,
    )


def with_rows(study: StudyTables, query: str, frame: pd.DataFrame) -> StudyTables:
    """Return the study with other rows as the answer to a query of its plot."""
    return replace(study, answers={**study.answers, query: replace(study.answers[query], frame=frame)})

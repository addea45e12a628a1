"""Tables of a finished smoke run, recorded as Parquet, and the report's answers from them.

    python -m tests.tsfmscope.report.recorded FOLDER

records them again from a checkout in which `dvc repro` has run with params/smoke.yaml. A test that needs another row
changes the recorded tables by SQL, before the views are made.
"""

from __future__ import annotations

import contextlib
import sys
from dataclasses import replace
from pathlib import Path

import duckdb
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from stages import report
from stages.config.params import load
from stages.planning.report_parts import TOKENS, answer_islands
from stages.planning.sources import sources
from store import catalogue
from store.report_queries import load_queries
from store.schema import arrow_schema
from tsfmscope.report.plots import load_plot
from tsfmscope.report.tables import Answer, ReportTables, StudyTables

ROOT = Path(__file__).parents[3]
FOLDER = Path(__file__).with_name("recorded")
PARAMS = load(ROOT / "params" / "smoke.yaml")
STATES = "isotropy-states"  # the study whose tokens are drawn from activation files
# What a run knows about its machine and moment, made the same for every recording.
CONSTANTS = {"runs": "'a machine' as hardware, 'host' as host, '1a2b3c4' as \"commit\"", "timings": "'node' as node"}


def build(*changes: str) -> duckdb.DuckDBPyConnection:
    """Return a database of the recorded tables, changed by SQL, and of all views."""
    connection = duckdb.connect()
    catalogue._fill(connection, {name: [FOLDER / f"{name}.parquet"] for name in names()}, 0)
    for change in changes:
        connection.execute(change)
    catalogue._create_views(connection, catalogue.resources("store") / "sql")
    return connection


def copy_rows(table: str, where: str, **columns: str) -> str:
    """Return SQL that inserts copies of rows with other values, given as SQL, in some columns."""
    values = ", ".join(f'{value} as "{name}"' for name, value in columns.items())
    return f"insert into {table} select * replace ({values}) from {table} where {where}"


def names() -> list[str]:
    """Return the names of the recorded tables."""
    return sorted(path.stem for path in FOLDER.glob("*.parquet") if path.stem != "islands")


def islands() -> pd.DataFrame:
    """Return the tokens of the study STATES on three principal components."""
    return pq.read_table(FOLDER / "islands.parquet").to_pandas()


def answer_report(connection: duckdb.DuckDBPyConnection, tokens: pd.DataFrame | None = None) -> ReportTables:
    """Answer the page of the smoke profile, as the stage report does."""
    frame = islands() if tokens is None else tokens
    query = load_queries("study")["islands"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(report, "answer_islands", lambda params, study: Answer(query.title, query.sql, frame))
        return report.answer_tables(connection, PARAMS)


def answer_study(connection: duckdb.DuckDBPyConnection, name: str, plot: str, **facts: str | None) -> StudyTables:
    """Answer the queries of a study as if it had this plot. facts: its title and figure."""
    queries = load_queries("study")

    def answer(query: str) -> Answer:
        filled = queries[query].fill(study=name, models=[], datasets=[], conditions=[], layer="last", tokens=TOKENS)
        return Answer(filled.title, filled.sql, filled.run(connection).df())

    plot_queries = load_plot(plot).queries
    tests = answer("rank_tests") if load_plot(plot).has_rank_tests else None
    title, figure = facts.get("title") or f"A study of {plot}", facts.get("figure")
    conditions = ("context-128", "noisy")
    answers = {query: answer(query) for query in plot_queries}
    errors = answer("errors") if figure is None else None
    return StudyTables(name, title, figure, plot, conditions, answer("published"), answers, tests, errors)


def find_study(tables: ReportTables, plot: str) -> StudyTables:
    """Return the first study with a plot."""
    return next(study for study in tables.studies if study.plot == plot)


def with_rows(study: StudyTables, query: str, frame: pd.DataFrame) -> StudyTables:
    """Return the study with other rows as the answer to a query of its plot."""
    return replace(study, answers={**study.answers, query: replace(study.answers[query], frame=frame)})


def record(folder: Path) -> None:
    """Write the tables of a finished run to FOLDER."""
    FOLDER.mkdir(exist_ok=True)
    with contextlib.chdir(folder), duckdb.connect() as connection:
        for name, paths in sources().items():
            if name == "embeddings":
                continue
            columns = ", ".join(f'"{column}"' for column in arrow_schema(name).names)
            changed = f"replace ({CONSTANTS[name]})" if name in CONSTANTS else ""
            files = [str(path.resolve()) for path in paths]
            rows = f"select {columns} from read_parquet({files}, union_by_name = true)"
            table = (
                connection.sql(f"select * {changed} from ({rows}) order by all").to_arrow_table()
                if files
                else arrow_schema(name).empty_table()
            )
            write(name, table.cast(arrow_schema(name)))
        write("islands", pa.Table.from_pandas(answer_islands(PARAMS, STATES).frame, preserve_index=False))


def write(name: str, table: pa.Table) -> None:
    """Write one Parquet file, as small as it gets."""
    pq.write_table(table, FOLDER / f"{name}.parquet", compression="zstd", compression_level=19)


if __name__ == "__main__":
    record(Path(sys.argv[1]).resolve())

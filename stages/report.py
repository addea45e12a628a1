"""Stage report: two self-contained pages, figures as PNG, SVG and PDF, headline metrics, and data of `dvc plots`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

import store
from stages import BY_NAME, DATA
from stages.config.params import Params
from stages.planning.report_parts import FIGURES, answer_islands, write_figures
from store.files import write_text
from store.report_queries import ReportQuery, load_queries
from tsfmscope.report.page import run_page
from tsfmscope.report.page.page import render
from tsfmscope.report.plots import load_plot
from tsfmscope.report.tables import KEY_COLUMNS, Answer, ReportTables, StudyTables, nest_rows

if TYPE_CHECKING:
    import duckdb
    import pandas as pd

METRICS, PAGE, PLOTS = Path(DATA, "metrics.json"), Path(DATA, "report.html"), Path(DATA, "plots")
RUN_PAGE = Path(DATA, run_page.NAME)
# Not a dependency of the stage in dvc.yaml, because it contains the stage's own outputs.
LOCK = Path("dvc.lock")


def main(params: Params) -> None:
    """Write data/report.html, data/run.html, data/figures, data/metrics.json and data/plots from results.duckdb."""
    # One thread, so that the outputs have the same bytes each time.
    with store.open(threads=1) as connection:
        tables = answer_tables(connection, params)
        metrics = {}
        for name, query in load_queries("metrics").items():
            relation = query.fill(study=params.report_study).run(connection)
            metrics[name] = nest_rows(relation.columns, relation.fetchall(), KEY_COLUMNS[name])
        plots = _answer_dvc_plots(connection, params)
    n_figures = write_figures(tables)
    outs = read_lock(LOCK)
    write_text(PAGE, render(tables, outs))
    write_text(RUN_PAGE, run_page.render(tables, outs))
    write_text(METRICS, json.dumps(metrics, indent=2, sort_keys=True) + "\n")
    for name, frame in plots.items():
        write_text(PLOTS / f"{name}.csv", frame.to_csv(index=False))
    print(f"report: {PAGE}: {PAGE.stat().st_size / 1e6:.1f} MB; open it in a browser; {n_figures} figures: {FIGURES}")


def read_lock(lock: Path) -> dict[str, str]:
    """Return path -> MD5 of the files that results.duckdb is made from, as dvc.lock has them; {} without one."""
    if not lock.is_file():
        return {}
    entries = yaml.safe_load(lock.read_text("utf-8"))["stages"].values()
    outs = [out for entry in entries for out in entry.get("outs", [])]
    return {out["path"]: out["md5"] for out in outs if out["path"] in BY_NAME["tables"].reads and "md5" in out}


def answer_tables(connection: duckdb.DuckDBPyConnection, params: Params) -> ReportTables:
    """Run the queries of the page, and of each study's section."""
    answers: dict[str, Any] = {
        name: _answer(connection, query.fill(study=params.report_study)) for name, query in load_queries("page").items()
    }
    return ReportTables(
        params.report_study, params.profile, **answers, studies=tuple(_answer_studies(connection, params))
    )


def _answer(connection: duckdb.DuckDBPyConnection, query: ReportQuery) -> Answer:
    return Answer(query.title, query.sql, query.run(connection).df())


def _answer_studies(connection: duckdb.DuckDBPyConnection, params: Params) -> Iterator[StudyTables]:
    """Yield every study: the study of the main figures first, the others in the order of params.yaml."""
    queries = load_queries("study")
    for name in sorted(params.studies, key=lambda name: name != params.report_study):
        study = params.studies[name]
        plot = load_plot(study.plot)
        yield StudyTables(
            name,
            study.title,
            study.figure,
            study.plot,
            tuple(params.expand(name, "conditions")),
            _answer(connection, queries["published"].fill(study=name)),
            {
                query: answer_islands(params, name)
                if query == "islands"
                else _answer(connection, queries[query].fill(study=name))
                for query in plot.queries
            },
            _answer(connection, queries["rank_tests"].fill(study=name)) if plot.has_rank_tests else None,
            _answer(connection, queries["errors"].fill(study=name)) if study.figure is None else None,
        )


def _answer_dvc_plots(connection: duckdb.DuckDBPyConnection, params: Params) -> dict[str, pd.DataFrame]:
    """Return the data of `dvc plots` by name.

    The effective dimension by layer is that of the first study with plot `dimension`, else of the report's
    study.
    """
    drawing = [name for name, study in params.studies.items() if study.plot == "dimension"]
    studies = {"effective_dimension": [*drawing, params.report_study][0]}
    return {
        name: query.fill(study=studies.get(name, params.report_study)).run(connection).df()
        for name, query in load_queries("dvc_plots").items()
    }

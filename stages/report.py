"""One self-contained page, its figures as PNG and SVG, the headline metrics, and the data of `dvc plots`."""

from __future__ import annotations

import json
import multiprocessing
import tempfile
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

import store
from stages import BY_NAME, DATA
from stages.params import Params
from stages.pictured import states
from stages.sources import sources
from store import catalogue
from store.files import atomic, space, write_text
from tasks.report import studies, theory
from tasks.report.headlines import headlines, nested, plots
from tasks.report.light import light
from tasks.report.page import models, render
from tasks.report.queries import queries, study_queries
from tasks.report.query import Query
from tasks.report.rank_queries import rank_queries
from tasks.report.static import still
from tasks.report.tables import Answer, ReportTables, StudyTables

if TYPE_CHECKING:
    import duckdb
    import pandas as pd
    import plotly.graph_objects as go

METRICS, PAGE, PLOTS = Path(DATA, "metrics.json"), Path(DATA, "report.html"), Path(DATA, "plots")
FIGURES = Path(DATA, "figures")
LOCK = Path("dvc.lock")  # no dep: it holds this stage's own outs


def main(params: Params) -> None:
    """Write data/report.html, data/figures, data/metrics.json and data/plots, from Parquet and not results.duckdb."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "results.duckdb")
        catalogue.build(path, sources(), seed=params.seed)
        with store.open(path, threads=1) as connection:  # its outs are the same bytes each time
            answers = _answers(connection, queries(params.report.study))
            tables = ReportTables(
                params.report.study, params.profile, **answers, studies=tuple(_studies(connection, params))
            )
            metrics = _metrics(connection, params.report.study)
            drawn = _plots(connection, params)
    stills = _draw(tables)
    write_text(PAGE, render(tables, stills, locked(LOCK)))
    write_text(METRICS, json.dumps(metrics, indent=2, sort_keys=True) + "\n")
    for name, frame in drawn.items():
        write_text(PLOTS / f"{name}.csv", frame.to_csv(index=False))
    print(f"report: {PAGE}: {PAGE.stat().st_size / 1e6:.1f} MB; open it in a browser; {len(stills)} figures: {FIGURES}")


def locked(lock: Path) -> dict[str, str]:
    """Path -> MD5 of what this stage reads, as dvc.lock has them: DVC writes it after each stage. Empty without DVC."""
    if not lock.is_file():
        return {}
    entries = yaml.safe_load(lock.read_text("utf-8"))["stages"].values()
    outs = [out for entry in entries for out in entry.get("outs", [])]
    return {out["path"]: out["md5"] for out in outs if out["path"] in BY_NAME["report"].reads and "md5" in out}


def _answers(connection: duckdb.DuckDBPyConnection, asked: dict[str, Query]) -> dict[str, Any]:
    return {name: Answer(query.title, query.sql, connection.sql(query.sql).df()) for name, query in asked.items()}


def _studies(connection: duckdb.DuckDBPyConnection, params: Params) -> list[StudyTables]:
    """Every study, that of the main figures first, else in the order of params.yaml."""
    ordered = sorted(params.studies, key=lambda name: name != params.report.study)
    return [
        StudyTables(
            name,
            params.studies[name].title,
            params.studies[name].figure,
            params.studies[name].picture,
            tuple(params.asked(name, "conditions")),
            states=states(params, name),
            ranks=_answers(connection, rank_queries(name, params.studies[name].picture)),
            **_answers(connection, study_queries(name)),
        )
        for name in ordered
    ]


def _draw(tables: ReportTables) -> dict[str, bytes]:
    """Study, or section on theory -> its pictures as PNG; written as PNG and SVG. The folder is there at any rate."""
    with space(FIGURES):
        FIGURES.mkdir(parents=True, exist_ok=True)
    with ProcessPoolExecutor(mp_context=multiprocessing.get_context("spawn")) as pool:  # fork would share its threads
        made = pool.map(partial(_still, named=models(tables)), tables.studies)
        proved = {name: _write(name, [(one.title, one.figure)]) for name, one in theory.drawn(tables).items()}
        stills = {study.name: png for study, png in zip(tables.studies, made, strict=True) if png is not None}
    return stills | proved


def _still(study: StudyTables, named: list[str]) -> bytes | None:
    """A study's pictures, in a process of their own. named: every model, for its colour; None: nothing to draw."""
    drawn = studies.drawn(study, named)
    return _write(study.name, [(one.title, one.figure) for one in drawn]) if drawn else None


def _write(name: str, figures: list[tuple[str, go.Figure]]) -> bytes:
    """Figures as one PNG, which is answered in few colours, and one SVG."""
    made = still(figures)
    for suffix, data in made.items():
        with atomic(FIGURES / f"{name}.{suffix}") as temporary:
            temporary.write_bytes(data)
    return light(made["png"])


def _metrics(connection: duckdb.DuckDBPyConnection, study: str) -> dict[str, Any]:
    """The headline numbers that `dvc metrics show` prints and `dvc metrics diff` compares."""
    found = {}
    for name, asked in headlines(study).items():
        relation = connection.sql(asked.sql)
        found[name] = nested(relation.columns, relation.fetchall(), asked.names)
    return found


def _plots(connection: duckdb.DuckDBPyConnection, params: Params) -> dict[str, pd.DataFrame]:
    """What `dvc plots` draws; the layers are of the first study that pictures them, else of the report's own."""
    pictured = [name for name, study in params.studies.items() if study.picture == "dimension"]
    asked = plots(params.report.study, dimension=[*pictured, params.report.study][0])
    return {name: connection.sql(sql).df() for name, sql in asked.items()}

"""Stage report: a self-contained page, figures as PNG and SVG, headline metrics, and data of `dvc plots`."""

from __future__ import annotations

import json
import multiprocessing
import tempfile
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from tsfmscope import store
from tsfmscope.stages import BY_NAME, DATA
from tsfmscope.stages.config.params import Params
from tsfmscope.stages.pipeline.pca_states import states
from tsfmscope.stages.pipeline.sources import sources
from tsfmscope.store import catalogue
from tsfmscope.store.files import atomic, translate_full_disk, write_text
from tsfmscope.tasks.report import theory
from tsfmscope.tasks.report.dvc_metrics import headlines, nested, plots
from tsfmscope.tasks.report.page import studies
from tsfmscope.tasks.report.page.page import models, render
from tsfmscope.tasks.report.quantize_png import light
from tsfmscope.tasks.report.queries import queries, study_queries
from tsfmscope.tasks.report.query import Query
from tsfmscope.tasks.report.rank_queries import rank_queries
from tsfmscope.tasks.report.render.mpl_render import render as still
from tsfmscope.tasks.report.tables import Answer, ReportTables, StudyTables

if TYPE_CHECKING:
    import duckdb
    import pandas as pd
    import plotly.graph_objects as go

METRICS, PAGE, PLOTS = Path(DATA, "metrics.json"), Path(DATA, "report.html"), Path(DATA, "plots")
FIGURES = Path(DATA, "figures")
# Not a dependency of the stage in dvc.yaml, because it contains the stage's own outputs.
LOCK = Path("dvc.lock")


def main(params: Params) -> None:
    """Write data/report.html, data/figures, data/metrics.json and data/plots.

    All of them are made from the Parquet files, not from results.duckdb.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "results.duckdb")
        catalogue.build(path, sources(), seed=params.seed)
        # One thread, so that the outputs have the same bytes each time.
        with store.open(path, threads=1) as connection:
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
    """Return path -> MD5 of the inputs of this stage from dvc.lock, which DVC writes after each stage.

    Returns {} if there is no dvc.lock.
    """
    if not lock.is_file():
        return {}
    entries = yaml.safe_load(lock.read_text("utf-8"))["stages"].values()
    outs = [out for entry in entries for out in entry.get("outs", [])]
    return {out["path"]: out["md5"] for out in outs if out["path"] in BY_NAME["report"].reads and "md5" in out}


def _answers(connection: duckdb.DuckDBPyConnection, asked: dict[str, Query]) -> dict[str, Any]:
    return {name: Answer(query.title, query.sql, connection.sql(query.sql).df()) for name, query in asked.items()}


def _studies(connection: duckdb.DuckDBPyConnection, params: Params) -> list[StudyTables]:
    """Return every study: the study of the main figures first, the others in the order of params.yaml."""
    ordered = sorted(params.studies, key=lambda name: name != params.report.study)
    return [
        StudyTables(
            name,
            params.studies[name].title,
            params.studies[name].figure,
            params.studies[name].plot,
            tuple(params.asked(name, "conditions")),
            states=states(params, name),
            ranks=_answers(connection, rank_queries(name, params.studies[name].plot)),
            **_answers(connection, study_queries(name)),
        )
        for name in ordered
    ]


def _draw(tables: ReportTables) -> dict[str, bytes]:
    """Write the plots of every study and section on theory as PNG and SVG, and return name -> PNG.

    The folder is made even if there is nothing to draw.
    """
    with translate_full_disk(FIGURES):
        FIGURES.mkdir(parents=True, exist_ok=True)
    # Spawn, because forked processes would inherit the state of this process' threads.
    with ProcessPoolExecutor(mp_context=multiprocessing.get_context("spawn")) as pool:
        made = pool.map(partial(_still, named=models(tables)), tables.studies)
        proved = {name: _write(name, [(one.title, one.figure)]) for name, one in theory.drawn(tables).items()}
        stills = {study.name: png for study, png in zip(tables.studies, made, strict=True) if png is not None}
    return stills | proved


def _still(study: StudyTables, named: list[str]) -> bytes | None:
    """Write a study's plots and return their PNG, or None if there is nothing to draw.

    Runs in a process of a pool. named: every model, since a model's colour depends on all of them.
    """
    drawn = studies.drawn(study, named)
    return _write(study.name, [(one.title, one.figure) for one in drawn]) if drawn else None


def _write(name: str, figures: list[tuple[str, go.Figure]]) -> bytes:
    """Write figures as one PNG and one SVG, and return the PNG reduced to few colours."""
    made = still(figures)
    for suffix, data in made.items():
        with atomic(FIGURES / f"{name}.{suffix}") as temporary:
            temporary.write_bytes(data)
    return light(made["png"])


def _metrics(connection: duckdb.DuckDBPyConnection, study: str) -> dict[str, Any]:
    """Return the headline numbers that `dvc metrics show` prints and `dvc metrics diff` compares."""
    found = {}
    for name, asked in headlines(study).items():
        relation = connection.sql(asked.sql)
        found[name] = nested(relation.columns, relation.fetchall(), asked.names)
    return found


def _plots(connection: duckdb.DuckDBPyConnection, params: Params) -> dict[str, pd.DataFrame]:
    """Return the data of `dvc plots` by name.

    The effective dimension by layer is that of the first study with plot `dimension`, else of the report's
    study.
    """
    drawing = [name for name, study in params.studies.items() if study.plot == "dimension"]
    asked = plots(params.report.study, dimension=[*drawing, params.report.study][0])
    return {name: connection.sql(sql).df() for name, sql in asked.items()}

"""One self-contained page, the headline metrics, and the data of `dvc plots`."""

from __future__ import annotations

import json
import tempfile
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import store
from stages import DATA, planning
from stages.params import Params
from stages.sources import sources
from store import catalogue
from store.dumps import last_layers, layer_states
from store.files import write_text
from tasks.geometry.clusters import ClusterOptions, choose_clusters
from tasks.report.islands import project
from tasks.report.page import render
from tasks.report.queries import queries
from tasks.report.tables import Answer, ReportTables

if TYPE_CHECKING:
    import duckdb
    import pandas as pd

METRICS, PAGE, PLOTS = Path(DATA, "metrics.json"), Path(DATA, "report.html"), Path(DATA, "plots")
PICTURED = 1000  # tokens of a picture; more hide each other
PICTURED_STACK = {"chronos-t5": "decoder"}  # the studies' last layer (science.md section 1); others: their first stack


def main(params: Params) -> None:
    """Write data/report.html, data/metrics.json and data/plots, from the Parquet files and not from results.duckdb."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "results.duckdb")
        catalogue.build(path, sources(), seed=params.seed)
        with store.open(path) as connection:
            asked = queries(params.report.study)
            answers: dict[str, Any] = {
                name: Answer(q.title, q.sql, connection.sql(q.sql).df()) for name, q in asked.items()
            }
            metrics = _metrics(connection, params.report.study)
    answers["islands"] = _islands(params)
    write_text(PAGE, render(ReportTables(params.report.study, params.profile, **answers)))
    write_text(METRICS, json.dumps(metrics, indent=2, sort_keys=True) + "\n")
    for name in ("training", "effective_dimension", "nmse_against_isotropy"):
        write_text(PLOTS / f"{name}.csv", answers[name].frame.to_csv(index=False))
    print(f"report: {PAGE}: {PAGE.stat().st_size / 1e6:.1f} MB; open it in a browser")


def _metrics(connection: duckdb.DuckDBPyConnection, study: str) -> dict[str, Any]:
    """The headline numbers that `dvc metrics show` prints and `dvc metrics diff` compares."""
    asked = 'select measure, "grouping", n, spearman from correlation where study = ? order by all'
    found = connection.sql(asked, params=[study]).fetchall()
    metrics: dict[str, Any] = {"correlation": {}, "skill": {}}
    for measure, grouping, n, spearman in found:
        metrics["correlation"].setdefault(measure, {})[grouping] = {"n": n, "spearman": spearman}
    for model, ratio, seasonal in connection.sql("select model, wql_vs_median, wql_vs_seasonal from skill").fetchall():
        metrics["skill"][model] = {"wql_vs_median": ratio, "wql_vs_seasonal": seasonal}
    for table in ("geometry", "forecasts", "failures"):
        metrics[f"rows_{table}"] = len(connection.table(table))
    return metrics


def _islands(params: Params) -> Answer:
    """The last layer's states of every model on one data set, on their first three principal components."""
    import pandas as pd

    at_hand = [row for row in planning.dumps("embeddings") if row["condition"] == params.report.condition]
    named = {row["dataset"] for row in at_hand}
    dataset = params.report.islands if params.report.islands in named else min(named, default=params.report.islands)
    families = {name: row["family"] for name, row in planning.checkpoints().items()}
    pictured = [row for row in at_hand if row["dataset"] == dataset]
    frames = [_island(row, PICTURED_STACK.get(families[row["model"]]), params) for row in pictured]
    title = f"Islands of hidden states on {dataset}"
    sql = f"-- from the files of table dumps where dataset = '{dataset}' and condition = '{params.report.condition}'"
    return Answer(title, sql, pd.concat(frames) if frames else pd.DataFrame())


def _island(row: dict[str, Any], stack: str | None, params: Params) -> pd.DataFrame:
    path = Path(DATA, "embeddings", row["path"])
    places = {place[0]: place for place in last_layers(planning.parquet_metadata(path))}
    stack, last, normed = places[stack or max(places)]  # "encoder" comes after "decoder"
    data = layer_states(path, stack, last, normed)
    some = slice(0, PICTURED)
    states = data["states"][some]
    options = ClusterOptions(**params.geometry.model_dump(include={field.name for field in fields(ClusterOptions)}))
    labels = choose_clusters(states, options, seed=params.seed).labels
    identity = {name: row[name] for name in ("model", "dataset", "condition")} | {"stack": stack, "layer": last}
    return project(states, labels, list(data["series"][some]), data["position"][some], identity)

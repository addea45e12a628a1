"""Command `tsfmscope probe`: what each layer of a model knows of its series."""

from __future__ import annotations

from typing import Any

import pandas as pd
import typer

from tsfmscope.cli.from_function import Command
from tsfmscope.cli.output import print_lines, print_table
from tsfmscope.functions.probe import STATES, SUFFIXES, ProbeReport, probe
from tsfmscope.models.types import name_layer

EXAMPLES = """
tsfmscope probe chronos-bolt-mini
tsfmscope probe chronos-bolt-mini --max-series 512 --out probes.png
tsfmscope probe chronos-bolt-mini shops.csv --labels labels.csv
"""
MEANING = (
    "R²: share of the variance that a linear probe explains on series that did not fit it; AUC: chance that it ranks a "
    "series of a class above another. ±: half of the 95 % interval over series. directions: the first ones that keep "
    "95 % of the best layer's score; untrained states: those of random weights, best layer; n′: after the final norm."
)


def _scores_json(report: ProbeReport) -> dict[str, Any]:
    tables = {"scores": report.scores, "directions": report.directions, "best_layers": report.best_layers()}
    return {"title": report.title, "notes": report.notes} | {
        name: table.astype(object).where(table.notna(), None).to_dict("records") for name, table in tables.items()
    }


def _show_scores(report: ProbeReport) -> None:
    states = report.scores[report.scores["features"] == STATES]
    controls = [name for name in dict.fromkeys(report.scores["features"]) if name != STATES]
    layers = list(dict.fromkeys(zip(states["layer"], states["normed"], strict=True)))
    best = report.best_layers().set_index("factor")
    rows = []
    for factor, part in report.scores.groupby("factor", sort=False):
        values = part.groupby("features")["value"].max()
        of_layers = part[part["features"] == STATES]["value"].tolist()
        row = best.loc[factor]
        rows.append([
            factor, row["measure"], *of_layers, (row["high"] - row["low"]) / 2,
            None if pd.isna(row["directions"]) else row["directions"], *(values[name] for name in controls),
        ])  # fmt: skip
    names = [name_layer(layer, normed=normed) for layer, normed in layers]
    print_table(report.title, ["factor", "", *names, "±", "directions", *controls], rows)
    typer.echo(MEANING)
    print_lines(f"{note}." for note in report.notes)


COMMAND = Command(
    probe, _show_scores, _scores_json, EXAMPLES, files=("File: .png, .svg, .pdf, .csv or .parquet", SUFFIXES)
)

"""Command `tsfmscope ablate`: what the forecast of a model loses without each of its parts."""

from __future__ import annotations

from typing import Any

import typer

from tsfmscope.cli.from_function import Command
from tsfmscope.cli.output import print_lines, print_table
from tsfmscope.functions.ablate import MEANING, SUFFIXES, Ablation, ablate

EXAMPLES = """
tsfmscope ablate chronos-bolt-mini
tsfmscope ablate chronos-bolt-mini --data shops.csv --parts layer,exit --out ablation.png
tsfmscope ablate patchtst-mini --data macrodata --ways skip,resample --json
"""
FILES = "File: .png, .svg, .pdf (a heat map), .csv or .parquet (the parts)"


def _facts(result: Ablation) -> dict[str, Any]:
    rows = result.parts.astype(object).where(result.parts.notna() & ~result.parts.isin([float("inf")]), None)
    return {
        "title": result.title, "n_windows": result.n_windows, "units": result.units, "depths": result.depths,
        "parts": rows.to_dict("records"), "notes": result.notes,
    }  # fmt: skip


def _show(result: Ablation) -> None:
    table = result.table()
    print_table(result.title, [*table.columns], table.to_numpy().tolist())
    typer.echo(MEANING)
    print_lines(result.sentences())


COMMAND = Command(ablate, _show, _facts, EXAMPLES, files=(FILES, SUFFIXES))

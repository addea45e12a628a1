"""Command `tsfmscope compare`: similarity of the layers of two models on the user's data."""

from __future__ import annotations

from typing import Any

import pandas as pd
import typer

from tsfmscope.cli.from_function import Command
from tsfmscope.cli.output import print_lines, print_table
from tsfmscope.errors import printable
from tsfmscope.functions.compare import MEANING, SUFFIXES, Comparison, compare, name_layers

EXAMPLES = """
tsfmscope compare chronos-bolt-mini timesfm-2.5-mini co2
tsfmscope compare chronos-bolt-mini chronos-2-mini mine.csv --context 128 --out layers.png
tsfmscope compare patchtst-mini patchtst-mini mine.csv --json
"""


def _rows(table: pd.DataFrame) -> list[dict[Any, Any]]:
    """Return the rows of a table with None for missing values."""
    return table.astype(object).where(table.notna(), None).to_dict("records")


def _show(comparison: Comparison) -> None:
    matrix = comparison.matrix()
    lines = [[layer, *row.values()] for layer, row in zip(matrix.index, _rows(matrix), strict=True)]
    typer.echo(printable(f"{comparison.title}: CKA of the layers of the first (rows) and the second (columns)"))
    print_table("", ["layer", *matrix], lines)
    if comparison.moved is not None:
        moved = comparison.moved.assign(layer=name_layers(comparison.moved)).drop(columns="normed")
        print_table("How far each layer moved: 1 − CKA", [*moved], [[*row.values()] for row in _rows(moved)])
    typer.echo(MEANING)
    print_lines(comparison.sentences())


COMMAND = Command(
    compare, _show, lambda comparison: _rows(comparison.layers), EXAMPLES, without=("family", "precision"),
    files=("File: .png, .svg or .pdf (heat maps), .csv or .parquet (pairs of layers)", SUFFIXES),
)  # fmt: skip

"""Command `tsfmscope score`: errors of many models and baselines on the user's data, and the choice among them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from tsfmscope.cli.from_function import Command
from tsfmscope.cli.output import check_plot_file, print_table
from tsfmscope.errors import INTERRUPTED, printable
from tsfmscope.functions.score import SUFFIXES, ScoreResult, score

EXAMPLES = """
tsfmscope score mine.csv --horizon 28 --out score.html
tsfmscope score mine.csv --models chronos-bolt-mini,flowstate-mini --contexts 128 --contexts 512
tsfmscope score nile --horizon 6 --json

Exit codes: 0 all candidates are scored; 1 the work failed; 2 the command is not valid;
130 interrupted, with the table of the candidates that were finished.
"""
PlotFile = Annotated[
    Path | None,
    typer.Option(help="File: .html (a page with plot and table), .png, .svg, .pdf (the plot), .csv or .parquet."),
]


def _json(result: ScoreResult, out: Path | None) -> dict[str, Any]:
    if out is not None:
        result.save(out)
    return result.facts()


def _show(result: ScoreResult, out: Path | None) -> None:
    _json(result, out)
    table = result.table()
    print_table(result.title, [*table.columns], table.to_numpy().tolist())
    for sentence in result.sentences():
        typer.echo(printable(sentence))
    if out is not None:
        typer.echo(f"file: {out}")


COMMAND = Command(
    score, _show, _json, EXAMPLES, extras={"out": (PlotFile, None)},
    before=lambda out: check_plot_file("--out", out, SUFFIXES),
    exit_code=lambda result: INTERRUPTED if result.missing else 0,
)  # fmt: skip

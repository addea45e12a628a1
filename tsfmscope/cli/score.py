"""Command `tsfmscope score`: errors of many models and baselines on the user's data, and the choice among them."""

from __future__ import annotations

from tsfmscope.cli.from_function import Command
from tsfmscope.cli.output import print_lines, print_table
from tsfmscope.errors import INTERRUPTED
from tsfmscope.functions.score import SUFFIXES, ScoreResult, score

EXAMPLES = """
tsfmscope score mine.csv --horizon 28 --out score.html
tsfmscope score mine.csv --models chronos-bolt-mini,flowstate-mini --contexts 128 --contexts 512
tsfmscope score nile --horizon 6 --json

Exit codes: 0 all candidates are scored; 1 the work failed; 2 the command is not valid;
130 interrupted, with the table of the candidates that were finished.
"""
FILES = "File: .html (a page with plot and table), .png, .svg, .pdf (the plot), .csv or .parquet (the rows)"


def _show(result: ScoreResult) -> None:
    table = result.table()
    print_table(result.title, [*table.columns], table.to_numpy().tolist())
    print_lines(result.sentences())


COMMAND = Command(
    score, _show, ScoreResult.facts, EXAMPLES, files=(FILES, SUFFIXES),
    exit_code=lambda result: INTERRUPTED if result.missing else 0,
)  # fmt: skip

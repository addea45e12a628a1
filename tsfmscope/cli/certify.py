"""Command `tsfmscope certify`: whether a small model forecasts as well as its base, within a margin."""

from __future__ import annotations

import typer

from tsfmscope.cli.from_function import Command
from tsfmscope.cli.output import print_lines, print_table
from tsfmscope.errors import NOT_CERTIFIED, TOO_FEW, printable
from tsfmscope.functions.certify import CertifyResult, certify
from tsfmscope.report.render import SUFFIXES

EXAMPLES = """
tsfmscope certify chronos-bolt-mini patchtst-mini --data nile --data co2 --context 64
tsfmscope certify chronos-bolt-mini patchtst-mini --data mine.csv --horizon 6 --horizon 12 --margin 1.05 --json

Exit codes: 0 certified; 1 the work failed; 2 the command is not valid; 3 too few tasks,
neither pass nor fail; 4 not certified.
"""
CODES = {"certified": 0, "not certified": NOT_CERTIFIED, "too few tasks": TOO_FEW}
# Heading of the table -> column of the tasks.
COLUMNS = {
    "data set": "dataset", "horizon": "horizon", "series": "n_series", "WQL base": "wql_base",
    "WQL small": "wql_small", "ratio": "ratio", "coverage base": "coverage_base", "coverage small": "coverage_small",
}  # fmt: skip
# Scale, value and limit of each condition as text, in the order of `Certificate.conditions`.
TEXTS = (
    (1, "{:.4f}", "below {:g}"), (1, "{:.4f}", "at most {:g}"), (100, "{:.2f} points", "at most {:g} points"),
    (100, "{:.2f} points", "below {:g} points"), (1, "{:g}", "at least {:g}"),
)  # fmt: skip
FILES = "File of a plot of the ratios of all tasks: .png, .svg or .pdf"


def _show(result: CertifyResult) -> None:
    typer.echo(printable(result.describe_scope()))
    rows = [[row[column] for column in COLUMNS.values()] for row in result.tasks]
    print_table(f"{result.small} against {result.base}, context {result.tasks[0]['context']}", [*COLUMNS], rows)
    conditions = [
        (name, value.format(scale * number), limit.format(scale * bound), "pass" if is_met else "fail")
        for (name, number, bound, is_met), (scale, value, limit) in zip(
            result.certificate.conditions, TEXTS, strict=True
        )
    ]
    print_table("", ["condition", "value", "limit", ""], conditions)
    print_lines((*result.notes(), result.describe_exclusion(), result.describe_outcome()))


COMMAND = Command(
    certify, _show, CertifyResult.facts, EXAMPLES, files=(FILES, SUFFIXES),
    exit_code=lambda result: CODES[result.certificate.outcome],
)  # fmt: skip

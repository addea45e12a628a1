"""Command `tsfmscope inspect`: every layer of one model on the user's data."""

from __future__ import annotations

from typing import Any

import typer

from tsfmscope.cli.from_function import Command
from tsfmscope.cli.output import print_lines, print_table, with_spread
from tsfmscope.functions.inspect import COLUMNS, MEANING, SUFFIXES, LayerReport, inspect

EXAMPLES = """
tsfmscope inspect chronos-bolt-mini nile
tsfmscope inspect chronos-bolt-mini mine.csv --context 128 --horizon 12 --out look.html
tsfmscope inspect patchtst-mini mine.csv --json
"""
# Columns of whole numbers, some of which may be missing.
COUNTS = ("k", "cai_k", "n_clusters_used", "n_clusters_small")
FILES = "File: .html (a page with both figures), .png, .svg, .pdf, .csv or .parquet"


def _layers_json(report: LayerReport) -> list[dict[str, Any]]:
    layers = report.layers.astype(dict.fromkeys(COUNTS, "Int64"))
    table = layers.astype(object).where(layers.notna(), None)
    return [
        {str(name): value for name, value in row.items()} | report.license.columns for row in table.to_dict("records")
    ]


def _show_layers(report: LayerReport) -> None:
    rows = _layers_json(report)
    first = rows[0]
    values = {"share": first["share"], "epsilon": first["epsilon"], "percent": 100 * first["share"]}
    lines = []
    for row in rows:
        cells = {column: with_spread(row[column], row.get(f"{column}_sd")) for column in COLUMNS.values()}
        cells["layer"] = f"{row['layer']}{'′' if row['normed'] else ''}"
        # ε is below the rounding error of the singular values.
        if row["below_noise_floor"]:
            cells["numerical_rank"] = None
        lines.append(list(cells.values()))
    print_table(report.title, [name.format(**values) for name in COLUMNS], lines)
    typer.echo(MEANING.format(**values))
    logged = {f"{note}." for note in report.notes}
    print_lines(sentence for sentence in report.sentences() if sentence not in logged)
    print_lines([str(report.license)])


COMMAND = Command(inspect, _show_layers, _layers_json, EXAMPLES, files=(FILES, SUFFIXES))

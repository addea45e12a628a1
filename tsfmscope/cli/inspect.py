"""Commands `tsfmscope inspect`, every layer of one model on the user's data, and `embed`, one vector per series."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import pandas as pd
import typer

from tsfmscope.cli.from_function import Command
from tsfmscope.cli.output import check_plot_file, check_suffix, print_table, with_spread
from tsfmscope.errors import printable
from tsfmscope.files import write_atomic
from tsfmscope.functions.inspect import COLUMNS, MEANING, SUFFIXES, LayerReport, inspect
from tsfmscope.functions.states import embed

INSPECT_EXAMPLES = """
tsfmscope inspect chronos-bolt-mini nile
tsfmscope inspect chronos-bolt-mini mine.csv --context 128 --horizon 12 --out look.html
tsfmscope inspect patchtst-mini mine.csv --json
"""
# Columns of whole numbers, some of which may be missing.
COUNTS = ("k", "cai_k", "n_clusters_used", "n_clusters_small")
PlotFile = Annotated[
    Path | None, typer.Option(help="File: .html (a page with both figures), .png, .svg, .pdf, .csv or .parquet.")
]
EMBED_EXAMPLES = """
tsfmscope embed chronos-bolt-mini nile
tsfmscope embed chronos-bolt-mini mine.csv --context 128 --out vectors.parquet
tsfmscope embed chronos-bolt-mini mine.csv --layer 2 --pool max --json
"""
# Dimensions that the table shows; a file and JSON contain all of them.
MAX_COLUMNS = 6
VectorFile = Annotated[
    Path | None,
    typer.Option(help="File of the vectors, .csv or .parquet: the column `series`, then one per dimension."),
]


def _layers_json(report: LayerReport, out: Path | None) -> list[dict[str, Any]]:
    if out is not None:
        report.save(out)
    layers = report.layers.astype(dict.fromkeys(COUNTS, "Int64"))
    table = layers.astype(object).where(layers.notna(), None)
    return [
        {str(name): value for name, value in row.items()} | report.license.columns for row in table.to_dict("records")
    ]


def _show_layers(report: LayerReport, out: Path | None) -> None:
    rows = _layers_json(report, out)
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
    for sentence in report.sentences():
        if sentence not in logged:
            typer.echo(printable(sentence))
    typer.echo(printable(str(report.license)))
    if out is not None:
        typer.echo(f"file: {out}")


def _vectors_json(vectors: pd.DataFrame, out: Path | None) -> list[dict[str, Any]]:
    if out is not None:
        table = vectors.rename(columns=str).rename_axis("series").reset_index()
        with write_atomic(out) as temporary:
            if out.suffix == ".csv":
                table.to_csv(temporary, index=False)
            else:
                table.to_parquet(temporary, index=False)
    rows = zip(vectors.index, vectors.to_numpy().tolist(), strict=True)
    return [{"series": name, "vector": vector} for name, vector in rows]


def _show_vectors(vectors: pd.DataFrame, out: Path | None) -> None:
    rows, n_dimensions = _vectors_json(vectors, out), vectors.shape[1]
    if out is not None:
        typer.echo(f"{out}: {len(vectors)} series, {n_dimensions} dimensions")
        return
    names = ["series", *map(str, range(min(MAX_COLUMNS, n_dimensions)))]
    print_table("", names, [[row["series"], *row["vector"][:MAX_COLUMNS]] for row in rows])
    if n_dimensions > MAX_COLUMNS:
        typer.echo(f"{MAX_COLUMNS} of {n_dimensions} dimensions; --out FILE and --json give all of them")


INSPECT = Command(
    inspect, _show_layers, _layers_json, INSPECT_EXAMPLES, extras={"out": (PlotFile, None)},
    before=lambda out: check_plot_file("--out", out, SUFFIXES),
)  # fmt: skip
EMBED = Command(
    embed, _show_vectors, _vectors_json, EMBED_EXAMPLES, extras={"out": (VectorFile, None)},
    before=lambda out: check_suffix("--out", out, (".csv", ".parquet")),
)  # fmt: skip

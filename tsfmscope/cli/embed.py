"""Command `tsfmscope embed`: one vector per series."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import pandas as pd
import typer

from tsfmscope.cli.from_function import Command
from tsfmscope.cli.output import check_file, print_table
from tsfmscope.files import TABLES, write_atomic
from tsfmscope.functions.embed import embed

EXAMPLES = """
tsfmscope embed chronos-bolt-mini nile
tsfmscope embed chronos-bolt-mini mine.csv --context 128 --out vectors.parquet
tsfmscope embed chronos-bolt-mini mine.csv --layer 2 --pool max --json
tsfmscope embed chronos-bolt-mini shops.csv --layer best --labels labels.csv --out vectors.parquet
"""
# Dimensions that the table shows; a file and JSON contain all of them.
MAX_COLUMNS = 6
VectorFile = Annotated[
    Path | None,
    typer.Option(help="File of the vectors, .csv or .parquet: the column `series`, then one per dimension."),
]


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


COMMAND = Command(
    embed, _show_vectors, _vectors_json, EXAMPLES, extras={"out": (VectorFile, None)},
    before=lambda out: None if out is None else check_file(out, TABLES),
)  # fmt: skip

"""Command `tsfmscope embed`: one vector per series, as CSV, Parquet, JSON or a table."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stages.config import LARGEST_SEED
from stages.config.params import ParamsError
from tsfmscope.cli.options import (
    Data,
    Device,
    Family,
    Id,
    Json,
    Model,
    RunPrecision,
    Time,
    TimeFormat,
    TimeZone,
    Value,
    name_columns,
)
from tsfmscope.cli.output import print_json, print_table
from tsfmscope.cli.progress import show_progress
from tsfmscope.defaults import CONTEXT, MAX_CONTEXT, MIN_CONTEXT, Pool

if TYPE_CHECKING:
    import pandas as pd

SUFFIXES = (".csv", ".parquet")
# Dimensions that the table shows; a file and JSON contain all of them.
MAX_COLUMNS = 6

Stack = Annotated[
    str | None, typer.Option(help="Stack of layers, such as encoder; default: the stack that reads the context.")
]
SampledSeries = Annotated[
    int | None, typer.Option(min=1, help="Largest number of series, sampled with the seed; default: all series.")
]


def embed(
    model: Model,
    data: Data,
    family: Family = None,
    layer: Annotated[
        str, typer.Option(help="Layer number (0: the embedding), or last: the last state after the final norm.")
    ] = "last",
    stack: Stack = None,
    pool: Annotated[Pool, typer.Option(help="Pooling over the tokens of observed values.")] = "mean",
    context: Annotated[
        int, typer.Option(min=MIN_CONTEXT, max=MAX_CONTEXT, help="Number of steps at the end of each series.")
    ] = CONTEXT,
    max_series: SampledSeries = None,
    seed: Annotated[int, typer.Option(min=0, max=LARGEST_SEED, help="Seed of the sample of series.")] = 0,
    device: Device = "cpu",
    time: Time = None,
    series_id: Id = None,
    value: Value = None,
    time_format: TimeFormat = None,
    tz: TimeZone = None,
    precision: RunPrecision = None,
    out: Annotated[Path | None, typer.Option(help="File of the vectors: .csv or .parquet.")] = None,
    as_json: Json = False,
) -> None:
    """Compute one vector per series from hidden states.

    \b
    tsfmscope embed chronos-bolt-mini nile
    tsfmscope embed chronos-bolt-mini mine.csv --context 128 --out vectors.parquet
    tsfmscope embed chronos-bolt-mini mine.csv --layer 2 --pool max --json

    A vector is the mean, last or maximal hidden state of the last steps of a series. The file has one row per
    series, also for a short or constant one: its name in the column `series`, then one column per dimension. Series
    without an observed value are counted on stderr.
    """
    if out is not None and out.suffix not in SUFFIXES:
        raise ParamsError(f"--out {out}: expected a name that ends in {' or '.join(SUFFIXES)}")
    if layer != "last" and not layer.isdecimal():
        raise ParamsError(f"--layer {layer}: expected the number of a layer, or last")
    from tsfmscope.functions.api import embed as embed_series
    from tsfmscope.functions.model import load

    with show_progress() as watch:
        watch("loading the model", 0, 0)
        loaded = load(model, family=family, device=device, precision=precision)
        watch("hidden states", 0, 0)
        try:
            vectors = embed_series(
                loaded, data, layer=layer if layer == "last" else int(layer), stack=stack, pool=pool,
                context=context, max_series=max_series, seed=seed,
                columns=dataclasses.asdict(name_columns(time, series_id, value, time_format, tz)),
            )  # fmt: skip
        except ValueError as error:
            raise ParamsError(f"embed {model}: {error}") from None
    if out is not None:
        _write(vectors, out)
    if as_json:
        rows = zip(vectors.index, vectors.to_numpy().tolist(), strict=True)
        print_json([{"series": name, "vector": vector} for name, vector in rows])
    elif out is not None:
        typer.echo(f"{out}: {len(vectors)} series, {vectors.shape[1]} dimensions")
    else:
        _show(f"{model} on {data}", vectors)


def _write(vectors: pd.DataFrame, out: Path) -> None:
    """Write the vectors, completely or not at all. Raises ParamsError if the file cannot be written."""
    from store.files import atomic

    table = vectors.rename(columns=str).rename_axis("series").reset_index()
    try:
        with atomic(out) as temporary:
            if out.suffix == ".csv":
                table.to_csv(temporary, index=False)
            else:
                table.to_parquet(temporary, index=False)
    except OSError as error:
        raise ParamsError(f"--out {out}: cannot be written ({error.strerror}); name another file") from None


def _show(title: str, vectors: pd.DataFrame) -> None:
    dimensions = vectors.shape[1]
    columns = vectors.iloc[:, :MAX_COLUMNS]
    lines = [[name, *row.tolist()] for name, row in zip(columns.index, columns.to_numpy(), strict=True)]
    print_table(title, ["series", *map(str, columns.columns)], lines)
    if dimensions > MAX_COLUMNS:
        typer.echo(f"{MAX_COLUMNS} of {dimensions} dimensions; --out FILE and --json give all of them")

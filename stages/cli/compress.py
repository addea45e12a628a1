"""Command `tsfmscope compress`: a smaller checkpoint of a model, and its cost on the user's data."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tsfmscope.stages.cli.options import (
    Context,
    Device,
    Family,
    Horizon,
    Id,
    Json,
    MaxSeries,
    Model,
    Seed,
    Time,
    TimeFormat,
    Value,
    name_columns,
)
from tsfmscope.stages.cli.output import print_json, print_left_out, print_table
from tsfmscope.stages.cli.progress import show_progress
from tsfmscope.stages.config.compression import MethodName
from tsfmscope.stages.config.defaults import params_here
from tsfmscope.tasks.defaults import Precision

if TYPE_CHECKING:
    from tsfmscope.stages.cli.compressing import CompressResult


def compress(
    model: Model,
    folder: Annotated[Path, typer.Argument(help="New folder for the compressed model.")],
    data: Annotated[
        str,
        typer.Option(
            help="CSV or Parquet file, folder of such files, or data set, for calibration and for the scored forecasts."
        ),
    ],
    to: Annotated[
        float, typer.Option(min=0.01, max=1, help="Share of the attention's parameters that is kept.")
    ] = 0.25,
    method: Annotated[
        MethodName, typer.Option(help="Compression method of docs/compression.md.")
    ] = "activation-aware-2step",
    windows: Annotated[int, typer.Option(min=1, help="Number of calibration windows.")] = 32,
    heal: Annotated[
        int, typer.Option(min=0, help="Steps of training towards the outputs of the original, for example 300.")
    ] = 0,
    family: Family = None,
    context: Context = None,
    horizon: Horizon = None,
    max_series: MaxSeries = None,
    seed: Seed = None,
    device: Device = "cpu",
    time: Time = None,
    series_id: Id = None,
    value: Value = None,
    time_format: TimeFormat = None,
    precision: Annotated[
        Precision | None,
        typer.Option(
            help="Precision that runs the compressed model (weights are saved as float32); default: the model's own."
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Compress a model's attention and print its costs.

    \b
    tsfmscope compress chronos-bolt-nano smaller --to 0.25 --data nile --context 64
    tsfmscope compress chronos-bolt-nano smaller-joint --to 0.5 --method joint --data mine.csv --horizon 12 --json

    The compressed model is saved; size, time and accuracy are printed before and after. Only attention is
    compressed (docs/compression.md). Calibration ends before the last fifth of every
    series, and the scored forecasts lie in that fifth. Seconds are measured on this machine during this run.
    """
    from tsfmscope.stages.cli.compressing import CompressOptions, compress_attention
    from tsfmscope.stages.cli.inspection import InspectRequest

    request = InspectRequest(
        model, data, family, context=context, horizon=horizon, max_series=max_series, seed=seed, device=device,
        columns=name_columns(time, series_id, value, time_format),
    )  # fmt: skip
    options = CompressOptions(to, method, windows, precision, heal=heal)
    with show_progress() as watch:
        result = compress_attention(params_here(), request, options, folder, watch)
    if as_json:
        print_json(result.rows)
        print_left_out(result.skipped, as_json=True)
        return
    after = f", run in {precision} after" if precision else ""
    _show(f"{model} to {to:g} of its attention{after}", result)
    typer.echo(f"saved: {folder}; `tsfmscope inspect {folder} DATA` measures it, docs/compression.md loads it")


def _show(title: str, result: CompressResult) -> None:
    print_table(title, ["", "before", "after", "ratio"], [list(row.values()) for row in result.rows])
    typer.echo(
        f"wql (pooled) and mase (mean): over the last windows of {result.n_series} series, lower is better; "
        "bytes: memory of the weights"
    )
    print_left_out(result.skipped, as_json=False)

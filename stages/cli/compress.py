"""Command `tsfmscope compress`: a smaller checkpoint of a model, and its cost on the user's data."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from tsfmscope.stages.cli.inspect import Precision, watched
from tsfmscope.stages.cli.output import Json, say_json, say_left_out, say_table
from tsfmscope.stages.config import LARGEST_SEED
from tsfmscope.stages.config.defaults import params_here


class Method(StrEnum):
    """Compression methods of docs/compression.md that take a budget."""

    activation_aware_2step = "activation-aware-2step"
    activation_aware = "activation-aware"
    joint = "joint"
    svd = "svd"
    activation_aware_svd = "activation-aware-svd"


def compress(
    model: Annotated[str, typer.Argument(help="As of `inspect`.")],
    folder: Annotated[Path, typer.Argument(help="Where the smaller model goes: a new folder.")],
    data: Annotated[str, typer.Option(help="As of `inspect`: its past calibrates, its last fifth judges.")],
    to: Annotated[
        float, typer.Option(min=0.01, max=1, help="Share of the attention's parameters that is left.")
    ] = 0.25,
    method: Annotated[Method, typer.Option(help="See docs/compression.md.")] = Method.activation_aware_2step,
    windows: Annotated[int, typer.Option(min=1, help="That calibrate.")] = 32,
    family: Annotated[str | None, typer.Option(help="Of a model that is a folder.")] = None,
    context: Annotated[
        int | None, typer.Option(min=16, help="Steps of context; default: params.yaml's, or 500.")
    ] = None,
    horizon: Annotated[
        int | None, typer.Option(min=1, max=1024, help="Steps after it; default: the data set's, or 24.")
    ] = None,
    max_series: Annotated[int | None, typer.Option(min=1, help="A seeded sample where there are more.")] = None,
    seed: Annotated[
        int | None, typer.Option(min=0, max=LARGEST_SEED, help="Of sampled series, and of forecasts' samples.")
    ] = None,
    device: Annotated[str, typer.Option(help="cpu, cuda or cuda:N.")] = "cpu",
    precision: Annotated[
        Precision | None, typer.Option(help="That the smaller model runs in; saved is float32. Default: the model's.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Compress a model's attention, save the model, and print size, time and accuracy before and after.

    \b
    tsfmscope compress chronos-bolt-nano smaller --to 0.25 --data nile --context 64
    tsfmscope compress chronos-bolt-nano smaller-joint --to 0.5 --method joint --data mine.csv --horizon 12 --json

    Only attention is compressed (docs/compression.md). Calibration ends before the last fifth of every
    series, and the scored forecasts lie in that fifth. Seconds are measured on this machine during this run.
    """
    from tsfmscope.stages.cli.compressing import CompressOptions
    from tsfmscope.stages.cli.compressing import compress as narrow
    from tsfmscope.stages.cli.inspection import InspectRequest

    asked = InspectRequest(
        model, data, family, context=context, horizon=horizon, max_series=max_series, seed=seed, device=device
    )
    how = CompressOptions(to, method.value, windows, precision and precision.value)
    with watched() as watch:
        found = narrow(params_here(), asked, how, folder, watch)
    if as_json:
        say_json(found.rows)
        say_left_out(found.skipped, aside=True)
        return
    lines = [list(row.values()) for row in found.rows]
    after = f", run in {precision.value} after" if precision else ""
    say_table(f"{model} to {to:g} of its attention{after}", ["", "before", "after", "ratio"], lines)
    typer.echo(
        f"wql (pooled) and mase (mean): over the last windows of {found.n_series} series, lower is better; "
        "bytes: memory of the weights"
    )
    say_left_out(found.skipped, aside=False)
    typer.echo(f"saved: {folder}; `tsfmscope inspect {folder} DATA` looks at it, docs/compression.md loads it")

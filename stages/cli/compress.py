"""`tsfm-lens compress`: a smaller checkpoint of a model, and what that costs on one's own data."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from stages.cli.look import Precision, params_here, watched
from stages.cli.output import Json, say_json, say_left_out, say_table


class Method(StrEnum):
    """Of docs/compression.md, that take a budget."""

    aware_both = "aware-both"
    aware = "aware"
    joint = "joint"
    svd = "svd"
    aware_svd = "aware-svd"


def compress(
    model: Annotated[str, typer.Argument(help="As of `look`.")],
    folder: Annotated[Path, typer.Argument(help="Where the smaller model goes: a new folder.")],
    data: Annotated[str, typer.Option(help="As of `look`: its past calibrates, its last fifth judges.")],
    to: Annotated[
        float, typer.Option(min=0.01, max=1, help="Share of the attention's parameters that is left.")
    ] = 0.25,
    method: Annotated[Method, typer.Option(help="See docs/compression.md.")] = Method.aware_both,
    windows: Annotated[int, typer.Option(min=1, help="That calibrate.")] = 32,
    family: Annotated[str | None, typer.Option(help="Of a model that is a folder.")] = None,
    context: Annotated[
        int | None, typer.Option(min=16, help="Steps of context; default: params.yaml's, or 500.")
    ] = None,
    horizon: Annotated[
        int | None, typer.Option(min=1, max=1024, help="Steps after it; default: the data set's, or 24.")
    ] = None,
    max_series: Annotated[int | None, typer.Option(min=1, help="A seeded sample where there are more.")] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Of sampled series, and of forecasts' samples.")] = None,
    device: Annotated[str, typer.Option(help="cpu, cuda or cuda:N.")] = "cpu",
    precision: Annotated[
        Precision | None, typer.Option(help="That the smaller model runs in; saved is float32. Default: the model's.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Narrow a model's attention heads, save it, and say size, time and accuracy before and after.

    \b
    tsfm-lens compress chronos-bolt-nano smaller --to 0.25 --data nile --context 64
    tsfm-lens compress chronos-bolt-nano smaller-joint --to 0.5 --method joint --data mine.csv --horizon 12 --json

    Only attention is compressed (docs/compression.md). Calibration ends before the last fifth of every series, and the
    forecasts that are scored lie in it. Seconds are of this machine at this moment.
    """
    from stages.looking import Asked
    from stages.narrowing import Narrowing
    from stages.narrowing import compress as narrow

    asked = Asked(
        model, data, family, context=context, horizon=horizon, max_series=max_series, seed=seed, device=device
    )
    how = Narrowing(to, method.value, windows, precision and precision.value)
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
        f"wql and mase: of the last window of {found.n_series} series, lower is better; bytes: of the weights in memory"
    )
    say_left_out(found.skipped, aside=False)
    typer.echo(f"saved: {folder}; `tsfm-lens look {folder} DATA` looks at it, docs/compression.md loads it")

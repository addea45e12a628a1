"""Command `tsfmscope compress`: a smaller checkpoint of a model, and its cost on the user's data."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stages.config.defaults import params_here
from store.printable import printable
from store.render import to_json
from tsfmscope.cli.options import (
    Context,
    DataSets,
    Device,
    Family,
    Horizon,
    Id,
    Json,
    MaxSeries,
    Model,
    Season,
    Seed,
    Time,
    TimeFormat,
    TimeZone,
    Value,
    name_columns,
)
from tsfmscope.cli.output import print_json, print_left_out, print_table
from tsfmscope.cli.progress import show_progress
from tsfmscope.compression.options import METHOD, SHARE, WHOLE, WINDOWS, CalibrateOn
from tsfmscope.defaults import MethodName, Precision

if TYPE_CHECKING:
    from tsfmscope.cli.compressing import CompressResult

# Heading of the table of data sets -> column of the tasks.
COLUMNS = {"data set": "dataset", "series": "n_series", "WQL before": "wql_base", "WQL after": "wql_small"}
COLUMNS |= {"ratio": "ratio"}

SmallPrecision = Annotated[
    Precision | None,
    typer.Option(help="Precision that runs the compressed model, whatever --bits stores; default: the model's own."),
]

To = Annotated[
    float | None,
    typer.Option(
        min=0.01,
        max=1,
        help=f"Share of attention's parameters to keep; with whole-model, of all bytes; default: {SHARE}.",
    ),
]
BudgetSeconds = Annotated[
    float | None,
    typer.Option(help="Instead of --to, for whole-model: share of the original's seconds of a forecast, measured."),
]
Heal = Annotated[
    int, typer.Option(min=0, help="Steps of training towards the outputs of the original, for example 300.")
]
Bits = Annotated[
    int, typer.Option(help="Bits of every stored weight, embeddings included: 32, or 8 with one scale per row.")
]


def compress(
    model: Model,
    folder: Annotated[Path, typer.Argument(help="New folder for the compressed model.")],
    data: DataSets,
    to: To = None,
    budget_seconds: BudgetSeconds = None,
    method: Annotated[MethodName, typer.Option(help="Compression method of docs/compression.md.")] = METHOD,
    windows: Annotated[int, typer.Option(min=1, help="Number of calibration windows per data set.")] = WINDOWS,
    calibrate_on: Annotated[
        CalibrateOn, typer.Option(help="Series that calibrate: those of --data, synthetic series, or both.")
    ] = "both",
    heal: Heal = 0,
    bits: Bits = 32,
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
    tz: TimeZone = None,
    season: Season = None,
    precision: SmallPrecision = None,
    as_json: Json = False,
) -> None:
    """Compress a model, and print its costs.

    \b
    tsfmscope compress chronos-bolt-nano smaller --to 0.25 --data nile --context 64
    tsfmscope compress chronos-bolt-nano smaller-half --to 0.5 --data mine.csv --data nile --horizon 12 --json

    The compressed model is saved; size, time and accuracy are printed before and after, and the verdict of the
    certificate. Only attention is truncated and healed; --method whole-model also removes neurons of MLPs and rounds
    all weights, as --bits does. Calibration ends before the last fifth of every series, and the scored forecasts lie in
    that fifth. Seconds are measured on this machine during this run; a --budget-seconds that no measured model meets
    is refused with the smallest share that was found. The exit code is 0 with any verdict.
    """
    from tsfmscope.cli.certify import certificate_facts
    from tsfmscope.cli.compress_options import CompressOptions
    from tsfmscope.cli.compressing import compress_attention
    from tsfmscope.cli.inspection import InspectRequest

    request = InspectRequest(
        model, "", family, context=context, horizon=horizon, max_series=max_series, seed=seed, device=device,
        columns=name_columns(time, series_id, value, time_format, tz, season),
    )  # fmt: skip
    options = CompressOptions(to, method, windows, precision, calibrate_on, heal, bits, budget_seconds)
    with show_progress() as watch:
        result = compress_attention(params_here(), request, data, options, folder, watch)
    assert result.judged is not None, "compress_attention takes only models that forecast"
    assert result.license is not None, "compress_attention looks the licence up"
    if as_json:
        document = {"costs": result.costs, "calibration": result.calibration, **result.license.columns}
        print_json(to_json(document | certificate_facts(model, str(folder), result.judged)))
        print_left_out(result.judged.skipped, as_json=True)
        if result.note:
            typer.echo(result.note, err=True)
        return
    after = f", run in {precision} after" if precision else ""
    what = "attention" if method != WHOLE else "bytes" if budget_seconds is None else "seconds"
    _show(f"{model} to {options.share:g} of its {what}{after}", model, folder, result)


def _ratio(row: Mapping[str, Any]) -> Any:
    """Return the cell of a ratio; one with an interval that contains 1 is not printed."""
    low, high = row["ratio_low"], row["ratio_high"]
    if low is None:
        return row["ratio"]
    interval = f"{low:.2f} to {high:.2f}"
    return f"not distinguishable from 1 ({interval})" if low <= 1 <= high else f"{row['ratio']:.2f} ({interval})"


def _show(title: str, model: str, folder: Path, result: CompressResult) -> None:
    from tsfmscope.cli.certify import describe_exclusion, describe_outcome, describe_scope, print_tasks_left_out

    judged = result.judged
    assert judged is not None
    rows = [[row["quantity"], row["before"], row["after"], _ratio(row)] for row in result.costs]
    print_table(title, ["", "before", "after", "ratio"], rows)
    n_series = sum(row["n_series"] for row in judged.tasks)
    typer.echo(
        f"wql (pooled) and mase (mean): over windows in the last fifth of {n_series} series, lower is better; "
        "bytes: of the weights in memory; file_bytes: of the files of weights in the saved checkpoint"
    )
    seasons = ", ".join(dict.fromkeys(f"{row['dataset']} {row['season']}" for row in judged.tasks))
    typer.echo(printable(f"mase: over the error of repeating the last season, in steps: {seasons}"))
    typer.echo("seconds: of the fastest forecast; its ratio: median of forecasts of both models in turn, and interval")
    if result.note:
        typer.echo(result.note)
    if len(judged.tasks) > 1:
        typer.echo("wql and mase of several data sets: geometric mean")
        print_table("", [*COLUMNS], [[row[column] for column in COLUMNS.values()] for row in judged.tasks])
    if result.calibration:
        windows = ", ".join(f"{name} {count}" for name, count in result.calibration.items())
        typer.echo(printable(f"calibration windows: {windows}"))
    print_tasks_left_out(judged)
    print_left_out(judged.skipped, as_json=False)
    typer.echo(printable(str(result.license)))
    typer.echo(f"saved: {folder}; `tsfmscope inspect {folder} DATA` measures it, docs/compression.md loads it")
    typer.echo(printable(describe_scope(judged)))
    typer.echo(describe_exclusion(judged))
    typer.echo(printable(describe_outcome(model, str(folder), judged)))

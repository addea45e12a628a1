"""Command `tsfmscope rehearse`: released models with random weights, loaded through the hub's code and measured."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from tsfmscope.stages.cli.options import Json
from tsfmscope.stages.cli.output import print_json, print_table
from tsfmscope.stages.cli.progress import show_progress
from tsfmscope.stages.config import LARGEST_SEED
from tsfmscope.stages.config.params import ParamsError
from tsfmscope.stages.pipeline.exit_codes import FAILED
from tsfmscope.store.printable import printable

# Heading of the table -> column of the rows, and the number by which it is divided.
COLUMNS: dict[str, tuple[str, float]] = {
    "parameters, M": ("parameters", 1e6),
    "files, MB": ("bytes", 1e6),
    "write, s": ("seconds_write", 1),
    "download, s": ("seconds_download", 1),
    "load, s": ("seconds_load", 1),
    "states, s": ("seconds_states", 1),
    "forecast, s": ("seconds_forecast", 1),
    "peak writing, GB": ("peak_bytes_write", 1e9),
    "peak, GB": ("peak_bytes", 1e9),
}
# Of `--stages`, in the same form.
STAGE_COLUMNS: dict[str, tuple[str, float]] = {
    "stage": ("stage", 1),
    "wall, s": ("wall", 1),
    "jobs": ("jobs", 1),
    "jobs, s": ("seconds", 1),
    "predicted, s": ("seconds_predicted", 1),
    "process (sampled), GB": ("memory", 1e9),
    "predicted, GB": ("memory_predicted", 1e9),
}
COST_COLUMNS: dict[str, tuple[str, float]] = {
    "stage": ("stage", 1),
    "model": ("model", 1),
    "jobs, s": ("seconds", 1),
    "predicted, s": ("seconds_predicted", 1),
    "rows": ("rows", 1),
    "predicted": ("rows_predicted", 1),
    "files, MB": ("bytes", 1e6),
    "predicted, MB": ("bytes_predicted", 1e6),
}


def rehearse(
    models: Annotated[
        list[str] | None,
        typer.Argument(help="Released models by their names in params/paper.yaml; default: all that have a layout."),
    ] = None,
    folder: Annotated[
        Path,
        typer.Option(
            help="Folder of the rows, and of one model's weights at a time; with --stages, of all weights and results."
        ),
    ] = Path("rehearsal"),
    stages: Annotated[
        bool, typer.Option("--stages", help="Run every stage of params/paper.yaml with one series per data set.")
    ] = False,
    quick: Annotated[
        bool,
        typer.Option(
            "--quick",
            help="Take only the smallest model of each family; with --stages, under the names of the profile.",
        ),
    ] = False,
    seed: Annotated[int, typer.Option(min=0, max=LARGEST_SEED, help="Seed of the random weights.")] = 0,
    as_json: Json = False,
) -> None:
    """Load released models with random weights.

    \b
    tsfmscope rehearse --quick
    tsfmscope rehearse chronos-bolt-tiny moirai-small --json
    tsfmscope rehearse --stages

    For each model, the files of its release are written with random weights, served by a hub on this machine, and
    loaded as hub:ORG/NAME; every tensor is compared with what was written, and the states of all layers and a forecast
    of one short series are computed. The files are deleted afterwards. Rows are kept in the folder: the same command
    continues after an interruption. With --stages, all studies of the profile run in a clone of the current commit, and
    seconds, memory, rows and bytes are printed next to what `tsfmscope plan --costs` predicts. Weights, clone and
    results stay in the folder. Exit codes: 0 success, 1 a model, a job or a stage fails, 2 a name, an option or a
    folder is not valid.
    """
    from tsfmscope.stages.cli.rehearsing import choose_models, rehearse_models

    if stages:
        _rehearse_stages(models or [], folder, seed, quick=quick, as_json=as_json)
        return
    names = choose_models(models or (), quick=quick)
    with show_progress(with_lines=True) as watch:
        rows = rehearse_models(names, folder, seed, watch)
    failed = [row for row in rows if row["status"] == "failed"]
    if as_json:
        print_json(rows)
    else:
        _show(rows)
        for row in failed:
            typer.echo(printable(f"failed: {row['model']}: {row['reason']}"))
    if failed:
        raise typer.Exit(FAILED)


def _rehearse_stages(models: list[str], folder: Path, seed: int, *, quick: bool, as_json: bool) -> None:
    from tsfmscope.stages.cli.rehearsing_stages import rehearse_stages

    if models:
        raise ParamsError("--stages: got names of models too; leave out the names or the option")
    with show_progress(with_lines=True) as watch:
        document = rehearse_stages(folder, seed, watch, quick=quick)
    if as_json:
        print_json(document)
    else:
        for title, key, columns in (
            ("stages of params/paper.yaml, with random weights", "stages", STAGE_COLUMNS),
            ("predicted stages by model", "costs", COST_COLUMNS),
        ):
            lines = [[*(_scaled(row, *column) for column in columns.values())] for row in document[key]]
            print_table(title, list(columns), lines)
        for name, reason in document["not_predicted"].items():
            typer.echo(printable(f"not predicted: {name}: {reason}"))
        typer.echo(f"{document['failures']} jobs failed; results: {folder / 'repository'}")
    if document["failures"]:
        raise typer.Exit(FAILED)


def _show(rows: list[dict[str, Any]]) -> None:
    lines = [[row["model"], row["status"], *(_scaled(row, *column) for column in COLUMNS.values())] for row in rows]
    print_table("released layouts with random weights", ["model", "status", *COLUMNS], lines)


def _scaled(row: dict[str, Any], column: str, divisor: float) -> Any:
    value = row.get(column)
    return value / divisor if isinstance(value, float | int) and divisor != 1 else value

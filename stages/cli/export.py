"""Command `tsfmscope export`: a model as a checkpoint for use elsewhere."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from tsfmscope.stages.cli.options import Family, Json, Model
from tsfmscope.stages.cli.output import print_json
from tsfmscope.stages.config.defaults import params_here


def export(
    model: Model,
    folder: Annotated[Path, typer.Argument(help="New folder for the checkpoint.")],
    dense: Annotated[
        bool, typer.Option("--dense", help="Write matrices of the original shapes, which the model's package loads.")
    ] = False,
    family: Family = None,
    as_json: Json = False,
) -> None:
    """Write a model as a checkpoint for use elsewhere.

    \b
    tsfmscope export chronos-bolt-nano copy
    tsfmscope export chronos-bolt-nano dense --dense --json

    A compressed model is BASE@METHOD of params.yaml, or a folder that `tsfmscope compress` wrote. With
    --dense it gets the original shapes, so that the model's own package loads it.
    """
    from tsfmscope.stages.cli.exporting import export_model

    exported = export_model(params_here(), model, folder, dense=dense, family=family)
    if as_json:
        print_json(asdict(exported) | {"folder": str(folder), "loader": exported.loader})
        return
    unchanged = "" if exported.was_compressed or not dense else "; it was dense before"
    typer.echo(f"{folder}: {exported.parameters:,} parameters, {exported.bytes:,} bytes{unchanged}")
    typer.echo(f"load it: {exported.loader}")

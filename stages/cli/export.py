"""Command `tsfmscope export`: a model as a checkpoint or an ONNX model for use elsewhere."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tsfmscope.stages.cli.options import Family, Json, Model
from tsfmscope.stages.cli.output import print_json
from tsfmscope.stages.config.defaults import params_here
from tsfmscope.stages.config.params import ParamsError

if TYPE_CHECKING:
    from tsfmscope.tasks.compression.onnx_export import OnnxModel


def export(
    model: Model,
    folder: Annotated[Path, typer.Argument(help="New folder for the checkpoint.")],
    dense: Annotated[
        bool, typer.Option("--dense", help="Write matrices of the original shapes, which the model's package loads.")
    ] = False,
    onnx: Annotated[
        bool,
        typer.Option("--onnx", help="Write the forecast as an ONNX model, which onnxruntime runs without torch."),
    ] = False,
    context: Annotated[
        int | None, typer.Option(min=1, help="With --onnx, steps of the input; default: the most the model reads.")
    ] = None,
    horizon: Annotated[
        int | None,
        typer.Option(min=1, help="With --onnx, steps of the forecast; default: the most of one forward pass."),
    ] = None,
    family: Family = None,
    as_json: Json = False,
) -> None:
    """Write a model as a checkpoint for use elsewhere.

    \b
    tsfmscope export chronos-bolt-nano copy
    tsfmscope export chronos-bolt-nano dense --dense --json
    tsfmscope export chronos-bolt-nano bolt-onnx --onnx --context 128 --horizon 24

    A compressed model is BASE@METHOD of params.yaml, or a folder that `tsfmscope compress` wrote. With
    --dense it gets the original shapes, so that the model's own package loads it. With --onnx, forecasts of
    onnxruntime are compared with the model's own before the folder is made.
    """
    from tsfmscope.stages.cli.exporting import export_model, export_onnx

    if onnx:
        if dense:
            raise ParamsError("--dense and --onnx: got both, expected one; an ONNX model runs in any shape")
        _print_onnx(export_onnx(params_here(), model, folder, context, horizon, family=family), folder, as_json)
        return
    if context is not None or horizon is not None:
        raise ParamsError("--context and --horizon: got without --onnx, expected with it; a checkpoint has all steps")
    exported = export_model(params_here(), model, folder, dense=dense, family=family)
    if as_json:
        print_json(asdict(exported) | {"folder": str(folder), "loader": exported.loader})
        return
    unchanged = "" if exported.was_compressed or not dense else "; it was dense before"
    typer.echo(f"{folder}: {exported.parameters:,} parameters, {exported.bytes:,} bytes{unchanged}")
    typer.echo(f"load it: {exported.loader}")


def _print_onnx(exported: OnnxModel, folder: Path, as_json: bool) -> None:
    if as_json:
        print_json(asdict(exported) | {"folder": str(folder)})
        return
    e = exported
    typer.echo(
        f"{folder}: {e.bytes:,} bytes, context {e.context}, horizon {e.horizon}, {len(e.levels)} quantiles, "
        f"opset {e.opset}"
    )
    typer.echo(
        f"largest difference from the model's own forecast: {e.difference:.1e} standard deviations of the context, "
        f"over {e.series} random series"
    )
    typer.echo(
        f"seconds of a forecast of {e.timed_series} series, {e.threads} threads: torch {e.torch_seconds:.4f}, "
        f"onnxruntime {e.onnxruntime_seconds:.4f}"
    )

"""Command `tsfmscope export`: a model as a checkpoint or an ONNX model for use elsewhere."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stages.config.defaults import params_here
from stages.config.params import ParamsError
from tsfmscope.cli.options import Family, Json, Model
from tsfmscope.cli.output import print_json

if TYPE_CHECKING:
    from tsfmscope.compression.onnx_export import OnnxModel


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
    bits: Annotated[
        int | None,
        typer.Option(help="With --onnx, 8: int8 weights and activations; default: the 32 bits of float32."),
    ] = None,
    family: Family = None,
    as_json: Json = False,
) -> None:
    """Write a model as a checkpoint for use elsewhere.

    \b
    tsfmscope export chronos-bolt-mini copy
    tsfmscope export chronos-bolt-mini dense --dense --json
    tsfmscope export patchtst-mini patchtst-onnx --onnx --context 128 --horizon 24 --bits 8

    A compressed model is BASE@METHOD of params.yaml, or a folder that `tsfmscope compress` wrote. With
    --dense it gets the original shapes, so that the model's own package loads it. With --onnx, forecasts of
    onnxruntime are compared with the model's own before the folder is made. With --bits 8 they differ: the output
    states by how much, and `tsfmscope certify MODEL FOLDER` tests whether that matters.
    """
    from tsfmscope.cli.exporting import export_model, export_onnx

    if onnx:
        if dense:
            raise ParamsError("--dense and --onnx: got both, expected one; an ONNX model runs in any shape")
        if bits not in (None, 8):
            raise ParamsError(f"--bits: got {bits}, expected 8; leave it out for 32 bits")
        exported = export_onnx(params_here(), model, folder, context, horizon, family=family, bits=bits or 32)
        _print_onnx(exported, folder, as_json)
        return
    if context is not None or horizon is not None:
        raise ParamsError("--context and --horizon: got without --onnx, expected with it; a checkpoint has all steps")
    if bits is not None:
        raise ParamsError("--bits: got without --onnx, expected with it; `compress --bits 8` writes checkpoints")
    written = export_model(params_here(), model, folder, dense=dense, family=family)
    if as_json:
        print_json(asdict(written) | {"folder": str(folder), "loader": written.loader})
        return
    unchanged = "" if written.was_compressed or not dense else "; it was dense before"
    typer.echo(f"{folder}: {written.parameters:,} parameters, {written.bytes:,} bytes{unchanged}")
    typer.echo(f"load it: {written.loader}")


def _print_onnx(exported: OnnxModel, folder: Path, as_json: bool) -> None:
    if as_json:
        print_json(asdict(exported) | {"folder": str(folder)})
        return
    e = exported
    of_float = f" ({e.float_bytes:,} with float32 weights)" if e.bytes != e.float_bytes else ""
    float_run = f"{e.float_seconds:.4f} in float32 and " if e.bits == 8 else ""
    typer.echo(
        f"{folder}: {e.bytes:,} bytes{of_float}, context {e.context}, horizon {e.horizon}, {len(e.levels)} quantiles, "
        f"opset {e.opset}"
    )
    typer.echo(
        f"difference from the model's own forecast: {e.difference:.1e} at most, {e.mean_difference:.1e} on average, in "
        f"standard deviations of the context, over {e.series} random series"
    )
    typer.echo(
        f"seconds of a forecast of {e.timed_series} series, {e.threads} threads: torch {e.torch_seconds:.4f}, "
        f"onnxruntime {float_run}{e.onnxruntime_seconds:.4f}{' in int8' if e.bits == 8 else ''}"
    )

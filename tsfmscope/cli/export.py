"""Command `tsfmscope export`: a checkpoint or an ONNX model for use elsewhere."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import typer

from tsfmscope.cli.from_function import Command
from tsfmscope.functions.export import Exported, export

EXAMPLES = """
tsfmscope export chronos-bolt-mini copy
tsfmscope export patchtst-mini dense --dense --json
tsfmscope export patchtst-mini patchtst-onnx --onnx --context 128 --horizon 24 --bits 8
"""


def _export_json(exported: Any) -> dict[str, Any]:
    facts = asdict(exported) | ({"loader": exported.loader} if isinstance(exported, Exported) else {})
    return facts | {"folder": str(exported.folder)}


def _show_exported(exported: Any) -> None:
    e = exported
    if isinstance(exported, Exported):
        typer.echo(f"{e.folder}: {e.parameters:,} parameters, {e.bytes:,} bytes")
        typer.echo(f"load it: {e.loader}")
        return
    of_float = f" ({e.float_bytes:,} with float32 weights)" if e.bytes != e.float_bytes else ""
    units = {8: " in int8", 4: " in 4 bits"}.get(e.bits, "")
    float_run = f"{e.float_seconds:.4f} in float32 and " if units else ""
    typer.echo(
        f"{e.folder}: {e.bytes:,} bytes{of_float}, context {e.context}, horizon {e.horizon}, "
        f"{len(e.levels)} quantiles, opset {e.opset}"
    )
    typer.echo(
        f"difference from the model's own forecast: {e.difference:.1e} at most, {e.mean_difference:.1e} on average, in "
        f"standard deviations of the context or sizes of the forecast, over {e.series} random series"
    )
    typer.echo(
        f"seconds of a forecast of {e.timed_series} series, {e.threads} threads: torch {e.torch_seconds:.4f}, "
        f"onnxruntime {float_run}{e.onnxruntime_seconds:.4f}{units}"
    )


COMMAND = Command(export, _show_exported, _export_json, EXAMPLES, without=("precision",))

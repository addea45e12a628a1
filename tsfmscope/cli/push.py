"""Command `tsfmscope push`: upload of a checkpoint folder to the model hub."""

from __future__ import annotations

from dataclasses import asdict

import typer

from tsfmscope.cli.from_function import Command
from tsfmscope.functions.push import Uploaded, push

EXAMPLES = """
tsfmscope push smaller my-org/smaller
tsfmscope push bolt-onnx my-org/bolt-onnx --public --json
"""


def _show_uploaded(uploaded: Uploaded) -> None:
    card = "with a new model card" if uploaded.wrote_card else "with the model card that was there"
    typer.echo(f"{uploaded.url}: {len(uploaded.files)} files, {uploaded.bytes:,} bytes, {card}")
    typer.echo(f"commit {uploaded.commit}")


COMMAND = Command(push, _show_uploaded, asdict, EXAMPLES)

"""Command `tsfmscope push`: a checkpoint folder, uploaded to the model hub with a model card."""

from __future__ import annotations

from dataclasses import asdict

import typer

from tsfmscope.cli.from_function import Command
from tsfmscope.functions.push import push
from tsfmscope.hub_upload import Uploaded

EXAMPLES = """
tsfmscope push smaller my-org/smaller
tsfmscope push bolt-onnx my-org/bolt-onnx --public --json
"""


def _show(uploaded: Uploaded) -> None:
    card = "with a new model card" if uploaded.wrote_card else "with the model card that was there"
    typer.echo(f"{uploaded.url}: {len(uploaded.files)} files, {uploaded.bytes:,} bytes, {card}")
    typer.echo(f"commit {uploaded.commit}")


COMMAND = Command(push, _show, asdict, EXAMPLES)

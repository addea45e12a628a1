"""Command `tsfmscope push`: a checkpoint folder, uploaded to the model hub with a model card."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from store.printable import printable
from tsfmscope.cli.options import Json
from tsfmscope.cli.output import print_json


def push(
    folder: Annotated[Path, typer.Argument(help="Folder of a checkpoint, compressed or not, or of an ONNX model.")],
    name: Annotated[str, typer.Argument(help="Repository of the hub, ORG/NAME; it is made if there is none.")],
    public: Annotated[
        bool, typer.Option("--public", help="Make a new repository public; without it, it is private.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Upload a checkpoint folder to the model hub.

    \b
    tsfmscope push smaller my-org/smaller
    tsfmscope push bolt-onnx my-org/bolt-onnx --public --json

    The folder is one that `compress` or `export` wrote. The files of the model are printed, and uploaded in one commit
    without paths of this machine; other files stay here. A model card is written where neither the folder nor the
    repository has one. HF_TOKEN and HF_ENDPOINT are read, as by the hub's own tools.
    """
    from tsfmscope import hub_upload
    from tsfmscope.cli import pushing

    upload = pushing.prepare(folder, name)
    for line in upload.lines():
        typer.echo(printable(line), err=as_json)
    uploaded = hub_upload.upload(upload.files, name, upload.card, public=public)
    if as_json:
        print_json(asdict(uploaded))
        return
    card = "with a new model card" if uploaded.wrote_card else "with the model card that was there"
    typer.echo(f"{uploaded.url}: {len(uploaded.files)} files, {uploaded.bytes:,} bytes, {card}")
    typer.echo(f"commit {uploaded.commit}")

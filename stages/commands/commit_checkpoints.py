"""Command `tsfmscope commit-checkpoints`: pretrained checkpoints, copied to a folder that git keeps."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def commit_checkpoints(
    folder: Annotated[Path, typer.Argument(help="Folder of the checkpoints that are committed to git.")] = Path(
        "tsfmscope/checkpoints"
    ),
) -> None:
    """Copy pretrained checkpoints to a folder kept by git.

    The checkpoints are those that the stage `checkpoints` pretrained by the recipes of params.yaml. Each gets a model
    card, README.md, with its data, training and skill. The skill of its weights is read from docs/results/skill.csv,
    which `python -m bench.skill` writes; the command also renews cards.
    """
    from stages.planning.model_cards import commit
    from stages.planning.run_stage import read_params

    for name in commit(read_params(), folder):
        typer.echo(f"{folder / name}")

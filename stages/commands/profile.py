"""Command `tsfmscope profile`: another params file in place of params.yaml."""

from __future__ import annotations

from typing import Annotated

import typer

from stages.commands.plan import plan


def profile(
    name: Annotated[str, typer.Argument(help="Name of a file in params/, without .yaml.")],
    force: Annotated[bool, typer.Option("--force", help="Overwrite edits of params.yaml.")] = False,
) -> None:
    """Copy a file of params/ over params.yaml.

    \b
    tsfmscope profile smoke

    The file is checked first, and its plan is printed. A params.yaml with edits stays, unless --force is
    given.
    """
    from stages.config.profiles import profile_file, use_profile

    plan(profile_file(name))
    use_profile(name, force=force)

"""`tsfm-lens new study`: a block more in params.yaml, every other byte of it as it was."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, get_args

import typer

from stages.blocks.study import Measure, Picture
from stages.cli.output import Json, say_json
from stages.params import PARAMS_FILE

Names = Annotated[list[str] | None, typer.Option(help="Names with commas, or the option again; or all.")]


def study(
    name: Annotated[str, typer.Argument(help="Of the study: letters, digits and . _ @ = + -")],
    models: Annotated[list[str], typer.Option(help="Names with commas, or the option again; or all.")],
    datasets: Names = None,
    conditions: Names = None,
    title: Annotated[str | None, typer.Option(help="Its question, as the report heads it; default: the name.")] = None,
    measures: Annotated[list[str] | None, typer.Option(help=f"Of {', '.join(get_args(Measure))}.")] = None,
    layers: Annotated[str | None, typer.Option(help="all, first or last.")] = None,
    picture: Annotated[str | None, typer.Option(help=f"Of {', '.join(get_args(Picture))}.")] = None,
    params: Annotated[Path, typer.Option(help="The file that it is added to.")] = Path(PARAMS_FILE),
    as_json: Json = False,
) -> None:
    """Add a study to params.yaml; the file is checked before it is written, and nothing else in it changes.

    \b
    tsfm-lens new study rivers --models chronos-bolt-nano --datasets nile,co2 --conditions context-500
    tsfm-lens new study weights --models all --measures weights --picture growth
    """
    from stages.adding import add_study

    block = {
        "title": title or name,
        "measures": _names(measures),
        "models": _names(models),
        "datasets": _names(datasets),
        "conditions": _names(conditions),
        "layers": layers,
        "picture": picture,
    }
    line = add_study(params, name, {key: value for key, value in block.items() if value})
    if as_json:
        say_json({"study": name, "file": str(params), "line": line})
    else:
        typer.echo(f"{params}:{line}: study {name}; `python -m stages plan` says what it asks for, `dvc repro` runs it")


def _names(given: list[str] | None) -> list[str] | str | None:
    """The names of an option that was given once with commas, or several times; `all` alone is no list."""
    found = [name.strip() for one in given or [] for name in one.split(",") if name.strip()]
    return "all" if found == ["all"] else found

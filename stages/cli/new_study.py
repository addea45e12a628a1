"""Command `tsfmscope new study`: a new study in params.yaml, which leaves every other byte unchanged."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, get_args

import typer

from tsfmscope.stages.cli.output import Json, say_json
from tsfmscope.stages.config.params import PARAMS_FILE
from tsfmscope.stages.config.study import Measure
from tsfmscope.tasks.report.plots import plot_names

Names = Annotated[list[str] | None, typer.Option(help="Names with commas, or the option again; or all.")]


def study(
    name: Annotated[str, typer.Argument(help="Of the study: letters, digits and . _ @ = + -")],
    models: Annotated[list[str], typer.Option(help="Names with commas, or the option again; or all.")],
    datasets: Names = None,
    conditions: Names = None,
    title: Annotated[str | None, typer.Option(help="Its question, as the report heads it; default: the name.")] = None,
    measures: Annotated[list[str] | None, typer.Option(help=f"Of {', '.join(get_args(Measure))}.")] = None,
    layers: Annotated[str | None, typer.Option(help="all, first or last.")] = None,
    plot: Annotated[str | None, typer.Option(help=f"Of {', '.join(plot_names())}.")] = None,
    params: Annotated[Path, typer.Option(help="The file that it is added to.")] = Path(PARAMS_FILE),
    as_json: Json = False,
) -> None:
    """Add a study to params.yaml; the file is checked first, and the rest of it does not change.

    \b
    tsfmscope new study rivers --models chronos-bolt-nano --datasets nile,co2 --conditions context-500
    tsfmscope new study weights --models all --measures weights --plot growth
    """
    from tsfmscope.stages.config.new_study import add_study

    block = {
        "title": title or name,
        "measures": _names(measures),
        "models": _names(models),
        "datasets": _names(datasets),
        "conditions": _names(conditions),
        "layers": layers,
        "plot": plot,
    }
    line = add_study(params, name, {key: value for key, value in block.items() if value})
    if as_json:
        say_json({"study": name, "file": str(params), "line": line})
    else:
        typer.echo(
            f"{params}:{line}: study {name}; `python -m tsfmscope.stages plan` shows what it asks for, "
            "`dvc repro` runs it"
        )


def _names(given: list[str] | None) -> list[str] | str | None:
    """Return the names of an option given with commas or several times; `all` alone stays a string."""
    found = [name.strip() for one in given or [] for name in one.split(",") if name.strip()]
    return "all" if found == ["all"] else found

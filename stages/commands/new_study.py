"""Command `tsfmscope new study`: a new study in params.yaml, which leaves every other byte unchanged."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, get_args

import typer

from stages.commands.options import Json
from stages.config.params import PARAMS_FILE
from stages.config.study import Measure
from tsfmscope.cli.output import print_json
from tsfmscope.report.plots import plot_names


def study(
    name: Annotated[str, typer.Argument(help="Name of the study, of letters, digits and the characters ._@=+- only.")],
    models: Annotated[list[str], typer.Option(help="Model names with commas, or the option again; or all.")],
    datasets: Annotated[
        list[str] | None, typer.Option(help="Data set names with commas, or the option again; or all.")
    ] = None,
    conditions: Annotated[
        list[str] | None, typer.Option(help="Condition names with commas, or the option again; or all.")
    ] = None,
    title: Annotated[str | None, typer.Option(help="Question that heads its section of the report.")] = None,
    measures: Annotated[
        list[str] | None, typer.Option(help=f"Measures with commas: {', '.join(get_args(Measure))}.")
    ] = None,
    layers: Annotated[str | None, typer.Option(help="Layers that are measured: all, first or last.")] = None,
    plot: Annotated[str | None, typer.Option(help=f"Plot of its section: {', '.join(plot_names())}.")] = None,
    params: Annotated[Path, typer.Option(help="Params file that the study is added to.")] = Path(PARAMS_FILE),
    as_json: Json = False,
) -> None:
    """Add a study to params.yaml.

    \b
    tsfmscope new study rivers --models chronos-bolt-mini --datasets nile,co2 --conditions context-500
    tsfmscope new study weights --models all --measures weights --plot growth

    The file is checked first, and the rest of it does not change.
    """
    from stages.config.new_study import add_study

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
        print_json({"study": name, "file": str(params), "line": line})
    else:
        typer.echo(f"{params}:{line}: study {name}; `tsfmscope plan` prints its size, `dvc repro` runs it")


def _names(options: list[str] | None) -> list[str] | str | None:
    """Return the names of an option given with commas or several times; `all` alone stays a string."""
    names = [name.strip() for text in options or [] for name in text.split(",") if name.strip()]
    return "all" if names == ["all"] else names


app = typer.Typer(help="Add a block to params.yaml.", rich_markup_mode=None, no_args_is_help=True)


@app.callback()
def blocks() -> None:
    """Make `study` a command of its own, since typer would run a single one without its name."""


app.command("study")(study)

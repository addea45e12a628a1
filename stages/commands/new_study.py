"""Command `tsfmscope new study`: a new study in params.yaml, which leaves every other byte unchanged.

It is added as text, which keeps comments, quotes and the order of keys. A round trip through ruamel.yaml (0.19)
would change 57 lines of params.yaml, mostly line breaks and comments.
"""

from __future__ import annotations

import json
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, get_args

import typer
import yaml

from stages.config.blocks import Measure
from stages.config.params import PARAMS_FILE, ParamsError, load, parse
from store.files import write_text
from tsfmscope.cli.output import Json, print_json
from tsfmscope.report.plots import plot_names

# Characters of a line of YAML.
WIDTH = 110


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


def add_study(path: Path, name: str, block: Mapping[str, Any]) -> int:
    """Write a study after the last one and return the number of its first line, counted from 1.

    block: keys of stages.config.blocks.Study. Raises ParamsError, and writes nothing, if the file is not
    valid, if the name is already used or is not a valid name, if the block is not valid, or if `studies` is
    not written as a block.
    """
    if name in load(path).studies:
        raise ParamsError(f"{path}: studies.{name}: a study has this name already; choose another name")
    with path.open(newline="") as file:
        text = file.read()
    newline = "\r\n" if "\r\n" in text else "\n"
    kept, indent = _end(text, path)
    # Line breaks of Unicode, which JSON leaves as they are, are escaped: PyYAML would break the line there.
    plain = json.dumps(dict(block), ensure_ascii=False).isprintable()
    added = yaml.safe_dump(
        {name: dict(block)}, default_flow_style=None, width=WIDTH, allow_unicode=plain, sort_keys=False
    )
    added = textwrap.indent(added.rstrip("\n"), " " * indent).replace("\n", newline)
    changed = kept + newline + added + (text[len(kept) :] or newline)
    if list(parse(changed, path).studies)[-1] != name:
        raise ParamsError(f"{path}: cannot tell where `studies` ends; add the study by hand")
    write_text(path, changed)
    return kept.count("\n") + 2


def _end(text: str, path: Path) -> tuple[str, int]:
    """Return the text up to the end of the last study's last line, and the column of the studies' names."""
    root = yaml.compose(text)
    assert isinstance(root, yaml.MappingNode)
    entries = root.value
    blocks = [
        (position, node.value[0][0].start_mark)
        for position, (key, node) in enumerate(entries)
        if key.value == "studies" and isinstance(node, yaml.MappingNode) and not node.flow_style
        and node.value[0][0].start_mark.line > key.start_mark.line
    ]  # fmt: skip
    if not blocks:
        raise ParamsError(f"{path}: `studies` is not written as a block of lines; add the study by hand")
    ((at, first),) = blocks
    end = entries[at + 1][0].start_mark.index if at + 1 < len(entries) else len(text)
    lines = text[:end].split("\n")
    # Comments in the first column and empty lines belong to what follows.
    while not lines[-1].strip() or lines[-1].startswith("#"):
        lines.pop()
    return "\n".join(lines).removesuffix("\r"), first.column

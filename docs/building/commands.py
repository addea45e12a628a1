"""Generator of the page of every command and option, from the text of --help."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import typer
import typer.main

LEAD = """# Every command and option

Made from what `--help` prints. [The command tsfmscope](../cli.md) explains the commands with examples.
"""


def page() -> str:
    """Return the page of all commands as Markdown."""
    from tsfmscope.cli.app import PROGRAM, app

    return "\n".join([LEAD, *_section(PROGRAM, typer.main.get_command(app), level=2)])


def _section(name: str, command: Any, level: int) -> Iterator[str]:
    """Yield the parts of a command's section: its help, its arguments and options, and its subcommands.

    level: level of the heading, at most 4 for subcommands.
    """
    yield f"{'#' * level} `{name}`\n"
    yield _prose(command.help or "")
    rows = [
        _row(parameter)
        for parameter in command.params
        if parameter.name != "help" and not getattr(parameter, "hidden", False)
    ]
    if rows:
        yield "| argument or option | meaning | default |\n| --- | --- | --- |"
        yield "\n".join(rows) + "\n"
    for inner in getattr(command, "commands", {}).values():
        yield from _section(f"{name} {inner.name}", inner, level=min(level + 1, 4))


def _prose(text: str) -> str:
    """Return a help text as Markdown; paragraphs that click must not wrap (\\b) become code."""
    parts = [part.strip("\n") for part in re.split(r"\n\s*\n", text.replace("\b\n", "\b"))]
    paragraphs = [f"```text\n{part[1:]}\n```" if part.startswith("\b") else part for part in parts if part]
    return "\n\n".join(paragraphs) + "\n"


def _row(parameter: Any) -> str:
    names = ", ".join(f"`{name}`" for name in (*parameter.opts, *parameter.secondary_opts))
    if parameter.param_type_name == "argument":
        names = f"`{parameter.name.upper()}`"
    default = parameter.default
    default_text = "" if default is None or callable(default) or default in ((), [], False) else f"`{default}`"
    if parameter.required:
        default_text = "required"
    meaning = (getattr(parameter, "help", None) or "").replace("|", "\\|")
    return f"| {names} | {meaning} | {default_text} |"

"""How commands speak: rows or facts as JSON for machines, tables for people, both on stdout; progress on stderr."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any

import typer
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

Json = Annotated[bool, typer.Option("--json", help="Print JSON and nothing else on stdout.")]
SHORT = 12  # characters of a column that is never broken
WIDE = 200  # columns where the output is no terminal, so that nothing is cut


def say_json(found: Any) -> None:
    """Facts as one JSON document; floats in full, none of them NaN."""
    typer.echo(json.dumps(found, indent=2, ensure_ascii=False, allow_nan=False))


def say_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Rows as a table, numbers to three digits."""
    table = Table(title=escape(title) or None, title_justify="left", box=box.SIMPLE_HEAD)
    lines = [[cell(value) for value in row] for row in rows]
    for at, name in enumerate(columns):
        right = all(_is_number(line[at]) for line in lines)
        table.add_column(
            escape(name), justify="right" if right else "left", no_wrap=right or _is_short(line[at] for line in lines)
        )
    for line in lines:
        table.add_row(*map(escape, line))
    console().print(table)


def say_left_out(skipped: Mapping[str, int], *, aside: bool) -> None:
    """Reason -> series, a line each. aside: on stderr, where stdout is JSON."""
    for reason, n in skipped.items():
        typer.echo(f"left out: {n} series: {reason}", err=aside)


def console(*, stderr: bool = False) -> Console:
    """A console as wide as the terminal, or wide enough where there is none."""
    made = Console(highlight=False, stderr=stderr)
    return made if made.is_terminal else Console(highlight=False, stderr=stderr, width=WIDE)


def cell(value: Any) -> str:
    """A value as people read it."""
    if value is None:
        return "–"
    if isinstance(value, float):
        return f"{value:.3f}" if 1e-3 <= abs(value) < 1e3 or value == 0 else f"{value:.3g}"
    return str(value)


def _is_short(texts: Iterable[str]) -> bool:
    return max(map(len, texts), default=0) <= SHORT


def _is_number(text: str) -> bool:
    try:
        return not math.isnan(float(text))
    except ValueError:
        return text == "–"

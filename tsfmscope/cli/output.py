"""Output of the commands: JSON for programs and tables for people on stdout, progress on stderr."""

from __future__ import annotations

import contextlib
import importlib
import json
import math
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import typer
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from stages.config.params import ParamsError
from store.printable import printable

# Characters of a column that is never wrapped.
SHORT = 12
# Characters of a line if the output is not a terminal, so that nothing is cut off.
WIDE = 200


def check_plot_file(option: str, path: Path | None, suffixes: Sequence[str]) -> None:
    """Check, before the work, that a plot can be drawn into a file of this name, if there is one.

    Raises ParamsError for another suffix, and ModuleNotFoundError without the extra `report`.
    """
    if path is None:
        return
    if path.suffix not in suffixes:
        raise ParamsError(f"{option} {path}: expected a name that ends in {', '.join(suffixes)}")
    importlib.import_module("altair")


def print_json(value: Any) -> None:
    """Print a value as one JSON document, floats with all digits. Raises ValueError for NaN."""
    typer.echo(json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False))


@contextlib.contextmanager
def stdout_for_json(as_json: bool) -> Iterator[None]:
    """Send what the work prints to stderr, if stdout is for the JSON document alone."""
    with contextlib.redirect_stdout(sys.stderr) if as_json else contextlib.nullcontext():
        yield


def print_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Print rows as a table, with numbers as in `cell`."""
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


def print_left_out(skipped: Mapping[str, int], *, as_json: bool) -> None:
    """Print the number of series left out, one line per reason. as_json: on stderr, since stdout is JSON."""
    for reason, n in skipped.items():
        typer.echo(printable(f"left out: {n} series: {reason}"), err=as_json)


def console(*, stderr: bool = False) -> Console:
    """Return a console as wide as the terminal, or WIDE characters wide if there is none."""
    console = Console(highlight=False, stderr=stderr)
    return console if console.is_terminal else Console(highlight=False, stderr=stderr, width=WIDE)


def cell(value: Any) -> str:
    """Return a value as text for people: three decimals or three digits; control characters are escaped."""
    if value is None:
        return "–"
    if isinstance(value, float):
        return f"{value:.3f}" if 1e-3 <= abs(value) < 1e3 or value == 0 else f"{value:.3g}"
    return printable(str(value))


def with_spread(value: Any, spread: float | None) -> Any:
    """Return a value with its standard deviation, both rounded to the second digit of the latter.

    Returns the value alone if there is no standard deviation.
    """
    if value is None or spread is None:
        return value
    if isinstance(value, int) or spread == 0:
        return f"{cell(value)} ± {spread:.2g}"
    digits = max(0, 1 - math.floor(math.log10(spread)))
    return f"{value:.{digits}f} ± {spread:.{digits}f}"


def _is_short(texts: Iterable[str]) -> bool:
    return max(map(len, texts), default=0) <= SHORT


def _is_number(text: str) -> bool:
    try:
        return not math.isnan(float(text.partition(" ± ")[0]))
    except ValueError:
        return text == "–"
